//! Report of a measurement as one HTML file.

use super::{Capacity, CapacityRequest, Server, Step, Work, answer, table};
use crate::finder::Finding;
use crate::statistics::median;
use std::time::{SystemTime, UNIX_EPOCH};
use strowger_measure::grouped;
use strowger_report::figure::{Axis, Fault, Form, Plot, Point, Scale, Series, XAxis};
use strowger_report::{Figure, Item, Mark, Page, Tile, Tone, rfc3339};

/// Returns the page. `when`: the begin of the measurement; `program`: name and version of the generator.
///
/// # Errors
/// A figure has a fault.
pub fn page(request: &CapacityRequest, capacity: &Capacity, when: SystemTime, program: &str) -> Result<String, Fault> {
    let target = request.target.to_string();
    let mut page = Page::new(&format!("Capacity of {target}"));
    page.heading(&format!("Capacity of {target}"));
    let us = when.duration_since(UNIX_EPOCH).unwrap_or_default().as_micros() as u64;
    page.about(&format!(
        "{} · {} by {} · {:.0} s · {program}",
        rfc3339(us),
        request.address,
        request.transport.text(),
        capacity.time.as_secs_f64()
    ));
    let limit = &capacity.limit;
    let tone = match limit.finding {
        Finding::Found | Finding::AtLeast => Tone::Good,
        Finding::Nothing | Finding::Unstable => Tone::Bad,
    };
    page.banner(tone, "Answer", &answer(request, capacity), &[]);
    let unit = request.work.unit();
    page.tiles(&[
        tile("limit", format!("{} {unit}", grouped(limit.load)), limit.finding.to_string()),
        tile("cause", limit.cause.part.to_string(), limit.cause.thread.clone().unwrap_or_default()),
        tile("trials", capacity.steps.len().to_string(), format!("of {} loads", limit.loads)),
    ]);
    page.section("Figures");
    page.figures(&[delays(request, capacity)?, shares(request, capacity)?]);
    page.section("Trials");
    page.table(&table(request, capacity));
    let doubts: Vec<Item> = capacity.steps.iter().filter_map(doubt).collect();
    if !doubts.is_empty() {
        page.section("Trials with a failed check");
        page.items(&doubts);
    }
    page.section("Method");
    page.text(&method(request));
    Ok(page.html(&format!("{program} · times are UTC")))
}

fn tile(name: &str, value: String, more: String) -> Tile {
    Tile { name: name.into(), value, more }
}

fn doubt(step: &Step) -> Option<Item> {
    let crate::row::Validity::Reasons(reasons) = &step.outcome.validity else { return None };
    let sentences: Vec<&str> = reasons.iter().map(|reason| reason.sentence.as_str()).collect();
    Some(Item { mark: Some(Mark::Missed), text: format!("{}: {}", grouped(step.load), sentences.join("; ")) })
}

fn method(request: &CapacityRequest) -> String {
    let delay = match request.work {
        Work::Options => "the response",
        Work::Registrations => "the 200 of a registration",
        Work::Calls => "the first ringing of a call",
    };
    format!(
        "The load doubles until a trial of {} s misses the goal, then the interval is halved down to 5 %; most of the trials of a load decide. \
         The goal: at most 1 % of the attempts fail, and 95 % of those that succeed wait at most 300 ms for {delay}, also where the growth of \
         the delay goes on for 10 s. An attempt without an answer for 2 s has failed. At the end 0.9 of the limit is offered for {} s. No more \
         than {} {} are offered.",
        request.trial.as_secs_f64(),
        request.hold.as_secs_f64(),
        grouped(request.most),
        request.work.unit()
    )
}

fn axis(title: &str, unit: &str) -> Axis {
    Axis { title: title.into(), unit: unit.into(), scale: Scale::Linear }
}

/// Returns for each load, in ascending order, the median of its trials with the least and the greatest value.
fn series(name: &str, capacity: &Capacity, value: impl Fn(&Step) -> Option<f64>) -> Series {
    let mut loads: Vec<f64> = capacity.steps.iter().map(|step| step.load).collect();
    loads.sort_by(f64::total_cmp);
    loads.dedup();
    let point = |load: f64| {
        let steps = || capacity.steps.iter().filter(|step| step.load == load);
        let values: Vec<f64> = steps().filter_map(&value).collect();
        let [least, most] = [f64::min, f64::max].map(|of| values.iter().copied().reduce(of));
        let interval = least.zip(most).filter(|_| values.len() > 1).map(|(least, most)| [least, most]);
        let is_invalid = steps().all(|step| !step.outcome.validity.is_valid());
        least.map(|_| Point { x: load, y: median(values), interval, is_invalid })
    };
    Series { name: name.into(), form: Form::Points, points: loads.into_iter().filter_map(point).collect() }
}

fn figure(
    name: &str,
    title: &str,
    note: &str,
    request: &CapacityRequest,
    y: Axis,
    series: Vec<Series>,
) -> Result<Figure, Fault> {
    let series: Vec<Series> = series.into_iter().filter(|series| !series.points.is_empty()).collect();
    if series.is_empty() {
        return Figure::without_data(name, title, "nothing was measured");
    }
    let x = XAxis::Numbers(axis(&format!("offered {}", request.work.unit()), "1/s"));
    Figure::new(Plot { name: name.into(), title: title.into(), note: note.into(), x, y, series, published: Vec::new() })
}

fn delays(request: &CapacityRequest, capacity: &Capacity) -> Result<Figure, Fault> {
    let delay = request.work.delay();
    let of = |percentile: &str| {
        let name = format!("{delay}.{percentile}");
        series(percentile, capacity, |step| step.outcome.value(&name))
    };
    let note = "Median of the trials of a load, from the least to the greatest; hollow: a check failed in all";
    figure("delay", "Delay over load", note, request, axis("delay", "us"), vec![of("p50"), of("p95")])
}

fn shares(request: &CapacityRequest, capacity: &Capacity) -> Result<Figure, Fault> {
    let failed = series("failed attempts", capacity, |step| step.outcome.value("failed.any"));
    let busiest = |step: &Step, name: &str| step.outcome.figures.largest(name).map(|(_, share)| share);
    let server = series("busiest thread of the server", capacity, |step| busiest(step, "server.thread/"));
    let own = series("busiest thread of the generator", capacity, |step| busiest(step, "generator.thread/"));
    let of = if matches!(request.server, Server::There(_)) { "its" } else { "this" };
    let machine = series(&format!("all cores of {of} machine"), capacity, |step| step.outcome.value("machine.cpu"));
    let note = format!("Failed attempts of all attempts; processor time of a core, of {of} machine of all cores");
    figure(
        "shares",
        "Failures and processor time over load",
        &note,
        request,
        axis("share", "%"),
        vec![failed, server, own, machine],
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finder::{Cause, Limit, Method, Part, TrialOutcome};
    use std::path::PathBuf;
    use std::time::Duration;
    use strowger_core::Transport;

    fn step(load: f64, failed: f64, is_met: bool) -> Step {
        let mut outcome = TrialOutcome::default();
        for (name, value) in
            [("failed.any", failed), ("request.p50", 200.0), ("request.p95", load), ("machine.cpu", 40.0)]
        {
            outcome.figures.set(name, value).expect("a known figure");
        }
        Step { load, length: Duration::from_secs(2), outcome, is_met }
    }

    /// Returns a search of five trials, two of which have the same load.
    fn measured() -> (CapacityRequest, Capacity) {
        let request = CapacityRequest {
            target: "sip:<b>@127.0.0.1:5070".parse().expect("a target"),
            address: "127.0.0.1:5070".parse().expect("an address"),
            transport: Transport::Udp,
            work: Work::Options,
            words: Vec::new(),
            program: PathBuf::new(),
            server: Server::Unseen,
            most: 2_000.0,
            trial: Duration::from_secs(2),
            hold: Duration::from_secs(30),
            folder: PathBuf::new(),
        };
        let cause = Cause { part: Part::Server, thread: None, sign: "it refused calls with 5xx or 6xx".into() };
        let limit = Limit {
            method: Method::Search,
            finding: Finding::Found,
            load: 1_850.0,
            beyond: Some(1_900.0),
            missed: Some("failed.any".into()),
            cause,
            loads: 3,
            trials: 5,
            marked: false,
        };
        let steps = vec![
            step(1_850.0, 0.0, true),
            step(1_900.0, 7.0, false),
            step(1_850.0, 0.5, true),
            step(1_900.0, 5.0, false),
            step(1_665.0, 0.0, true),
        ];
        let capacity =
            Capacity { limit, is_confirmed: true, is_interrupted: false, steps, time: Duration::from_secs(99) };
        (request, capacity)
    }

    #[test]
    fn sentence_table_json_and_page_say_the_same() {
        let (request, mut capacity) = measured();
        let sentence = "sip:<b>@127.0.0.1:5070 carries 1,850 requests/s; beyond, more than 1 % of its OPTIONS fail; the limit \
                        is the server: it refused calls with 5xx or 6xx.";
        assert_eq!(answer(&request, &capacity), sentence);
        let json = super::super::json(&request, &capacity);
        assert_eq!(
            (&json["answer"], &json["limit"], &json["cause"]["part"]),
            (&sentence.into(), &1_850.0.into(), &"server".into())
        );
        assert_eq!(json["trials"][1]["figures"]["failed.any"]["value"], 7.0);
        assert_eq!(table(&request, &capacity).rows(), 5);
        let html = page(&request, &capacity, UNIX_EPOCH, "Strowger").expect("no figure has a fault");
        assert!(html.contains("carries 1,850 requests/s") && !html.contains("<b>@"));
        let points = series("p95", &capacity, |step| step.outcome.value("failed.any")).points;
        assert_eq!(points.iter().map(|point| point.x).collect::<Vec<f64>>(), [1_665.0, 1_850.0, 1_900.0]);
        assert_eq!((points[2].y, points[2].interval, points[0].interval), (6.0, Some([5.0, 7.0]), None));
        capacity.limit.cause.part = Part::Generator;
        assert!(answer(&request, &capacity).contains("the limit is the generator, so that the server may carry more"));
        (capacity.limit.finding, capacity.limit.load, capacity.is_confirmed) = (Finding::AtLeast, 2_000.0, true);
        let most = "sip:<b>@127.0.0.1:5070 carries at least 2,000 requests/s, the most that was offered (--max-rate).";
        assert_eq!(answer(&request, &capacity), most);
        capacity.limit.finding = Finding::Unstable;
        assert!(answer(&request, &capacity).contains("for a while and not when the load stays: more than 1 %"));
    }
}
