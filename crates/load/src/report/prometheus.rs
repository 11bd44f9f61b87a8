//! Running totals as text for Prometheus (text format 0.0.4).

pub use strowger_metrics::CONTENT_TYPE;

use super::json::method_name;
use strowger_measure::{Counter, Delay, Delays, Failure, Page, Rate, Run, Share, Statistic, Unit};
use strowger_message::Method;
use strowger_metrics::Exposition;

/// Writes the sum of all complete seconds of a run, and the rates and concurrency of the last.
pub fn exposition(run: &Run) -> String {
    let totals = &run.totals;
    let mut text = Exposition::default();
    for counter in Counter::ALL {
        let name = format!("strowger_load_{}_total", counter.key().replace('.', "_"));
        text.family(&name, "counter", counter.title());
        text.sample(&name, &[], totals.counter(*counter));
    }
    text.family("strowger_load_call_failures_total", "counter", "failed calls by cause");
    for failure in Failure::MEASURES {
        text.sample("strowger_load_call_failures_total", &[("cause", failure.key())], totals.failures(*failure));
    }
    requests(&mut text, totals);
    text.family("strowger_load_responses_total", "counter", "responses by the method of the request");
    for (direction, codes) in [("received", totals.responses_received()), ("sent", totals.responses_sent())] {
        for (method, code, count) in codes.iter() {
            let labels = [("direction", direction), ("method", &method_name(method)), ("code", &code.to_string())];
            text.sample("strowger_load_responses_total", &labels, count);
        }
    }
    text.family("strowger_load_delay_seconds", "summary", "delays of the whole run");
    for delay in Delay::ALL.iter().filter(|delay| delay.unit() == Unit::Microseconds) {
        percentiles(&mut text, "strowger_load_delay_seconds", ("delay", delay.key()), totals.delays(*delay));
    }
    text.family("strowger_load_score", "summary", "ratings and scores of received media streams");
    for delay in Delay::ALL.iter().filter(|delay| delay.unit() == Unit::Score) {
        scores(&mut text, *delay, totals.delays(*delay));
    }
    text.family("strowger_load_timer_seconds", "summary", "named timers of the scenario");
    for (name, delays) in run.timers.iter().zip(totals.timers()) {
        percentiles(&mut text, "strowger_load_timer_seconds", ("timer", name), delays);
    }
    text.family("strowger_load_ratio", "gauge", "ratios of the whole run, 0 to 1; those without a value are left out");
    for share in Share::ALL {
        if let Some(percent) = share.of(totals) {
            text.sample("strowger_load_ratio", &[("measure", share.key())], percent / 100.0);
        }
    }
    text.family("strowger_load_rate", "gauge", "calls, messages and bytes a second in the last complete second");
    let columns = strowger_measure::columns(&run.timers);
    if let Some(row) = run.recent().back() {
        for rate in Rate::ALL {
            let place = columns.iter().position(|column| column == rate.key());
            if let Some(value) = place.and_then(|place| row.values.get(place)).filter(|value| value.is_finite()) {
                text.sample("strowger_load_rate", &[("measure", rate.key())], value);
            }
        }
    }
    text.family("strowger_load_concurrency", "gauge", "calls open now");
    text.sample("strowger_load_concurrency", &[], totals.open);
    text.family("strowger_load_concurrency_most", "gauge", "the most calls open at once");
    text.sample("strowger_load_concurrency_most", &[], totals.peak);
    text.family("strowger_load_seconds", "gauge", "how long was measured");
    text.sample("strowger_load_seconds", &[], totals.covered as f64 / 1e6);
    text.finish()
}

fn requests(text: &mut Exposition, totals: &Page) {
    text.family("strowger_load_requests_total", "counter", "requests by method; resent ones are retransmissions");
    for method in Method::KNOWN.iter().copied().chain([Method::Other]) {
        let counts = [
            ("sent", totals.requests_sent(method)),
            ("received", totals.requests_received(method)),
            ("resent", totals.requests_resent(method)),
        ];
        for (direction, count) in counts.into_iter().filter(|(_, count)| *count > 0) {
            let labels = [("direction", direction), ("method", &method_name(method))];
            text.sample("strowger_load_requests_total", &labels, count);
        }
    }
}

/// Quantiles of a summary, in per cent.
const PERCENTS: [f64; 6] = [50.0, 90.0, 95.0, 99.0, 99.9, 99.99];

/// Returns the label of a quantile.
fn quantile(percent: f64) -> String {
    format!("{}", (percent * 100.0_f64).round() / 10_000.0)
}

/// Writes a summary of scores, of which the low ones count.
fn scores(text: &mut Exposition, delay: Delay, scores: &Delays) {
    let (name, label) = ("strowger_load_score", ("measure", delay.key()));
    for percent in PERCENTS.map(|percent| 100.0 - percent) {
        if let Some(score) = delay.figure(Statistic::Percentile(percent), scores) {
            text.sample(name, &[label, ("quantile", &quantile(percent))], score);
        }
    }
    text.sample(&format!("{name}_sum"), &[label], delay.sum(scores));
    text.sample(&format!("{name}_count"), &[label], scores.count());
}

fn percentiles(text: &mut Exposition, name: &str, label: (&str, &str), delays: &Delays) {
    for percent in PERCENTS {
        if let Some(us) = delays.percentile(percent) {
            text.sample(name, &[label, ("quantile", &quantile(percent))], us as f64 / 1e6);
        }
    }
    text.sample(&format!("{name}_sum"), &[label], delays.sum() as f64 / 1e6);
    text.sample(&format!("{name}_count"), &[label], delays.count());
}
