//! Fuzz target: every operation on a description, and its invariants.

use std::net::{IpAddr, Ipv4Addr};

use super::{
    Attribute, Bandwidth, Codec, Connection, Direction, Fmtp, Local, Media, Origin, Part, Repeat, Rtcp, RtpMap, Sdp,
    SdpEdit, Timing, answer, audio,
};
use crate::write::Write;

/// Parses a description, reads every view, edits and answers it. Panics only if this module has a defect.
pub fn fuzz_sdp(data: &[u8]) {
    let Ok(sdp) = Sdp::parse(data) else { return };
    let whole: Vec<u8> = sdp.lines().flat_map(|line| line.raw).copied().collect();
    assert_eq!(whole, data, "the lines together are all the bytes");
    assert_eq!(SdpEdit::new(&sdp).to_vec(), data, "an edit without changes changes nothing");
    let strict = sdp.check();
    views(&sdp);
    sdp.lines().for_each(|line| again(line.kind, line.value));
    edits(&sdp, strict.is_ok());
    answers(&sdp);
}

fn views(sdp: &Sdp<'_>) {
    std::hint::black_box((sdp.version(), sdp.origin(), sdp.name(), sdp.uri(), sdp.emails().count()));
    std::hint::black_box((sdp.phones().count(), sdp.timings().count()));
    for value in sdp.session().values(b'r') {
        std::hint::black_box(Repeat::parse(value).map(|repeat| repeat.offsets().count()));
    }
    for value in sdp.session().values(b'z') {
        std::hint::black_box(super::zones(value));
    }
    for (index, section) in std::iter::once(sdp.session()).chain(sdp.all_media()).enumerate() {
        let media = section.media();
        std::hint::black_box((section.information(), section.connection(), section.bandwidths().count()));
        std::hint::black_box((section.ptime(), section.maxptime(), section.direction(), section.rtcp()));
        std::hint::black_box((section.mid(), section.candidates().count(), section.cryptos().count()));
        std::hint::black_box((section.rtpmaps().count(), section.fmtps().count()));
        if let Some(media) = media {
            assert!(media.formats().count() >= media.payloads().count());
        }
        if let Some(medium) = index.checked_sub(1) {
            std::hint::black_box((sdp.connection_of(medium), sdp.direction_of(medium)));
        }
    }
}

/// Checks that the output of a view parses as an equal view.
fn again(kind: u8, value: &[u8]) {
    macro_rules! same {
        ($view:ident, $value:expr) => {
            if let Some(view) = $view::parse($value) {
                assert_eq!($view::parse(&written(&view)), Some(view));
            }
        };
    }
    match kind {
        b'o' => same!(Origin, value),
        b'c' => same!(Connection, value),
        b'b' => same!(Bandwidth, value),
        b't' => same!(Timing, value),
        b'm' => {
            let Some(media) = Media::parse(value) else { return };
            let text = written(&media);
            let read = Media::parse(&text).expect("what a line writes is a line");
            // Several blanks may separate formats; one is written.
            assert!(read.formats().eq(media.formats()), "formats stay");
            let parts = |media: &Media<'_>| (media.kind.to_owned(), media.port, media.count, media.protocol.to_owned());
            assert_eq!(parts(&read), parts(&media));
        }
        b'r' => {
            let Some(repeat) = Repeat::parse(value) else { return };
            let text = written(&repeat);
            let read = Repeat::parse(&text).expect("what a line writes is a line");
            assert_eq!((read.interval, read.duration), (repeat.interval, repeat.duration));
            assert!(read.offsets().eq(repeat.offsets()), "offsets stay");
        }
        b'a' => {
            let attribute = Attribute::parse(value);
            assert_eq!(Attribute::parse(&written(&attribute)), attribute);
            let value = attribute.value.unwrap_or_default();
            match attribute.name {
                b"rtpmap" => same!(RtpMap, value),
                b"fmtp" => same!(Fmtp, value),
                b"rtcp" => same!(Rtcp, value),
                _ => {}
            }
        }
        _ => {}
    }
}

fn written(view: &impl Write) -> Vec<u8> {
    let mut out = Vec::new();
    view.write(&mut out);
    out
}

fn edits(sdp: &Sdp<'_>, was_strict: bool) {
    let ip = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let mut edit = SdpEdit::new(sdp);
    edit.replace_connections(ip);
    edit.set_origin_address(ip);
    edit.set_origin_version(2);
    edit.set_connection(Part::Session, ip);
    edit.set_attribute(Part::Session, "x-fuzz", Some(b"1"));
    let last = sdp.media_count().saturating_sub(1);
    for media in [0, last] {
        let part = Part::Media(media);
        let kept = edit.keep_formats(media, |format| format.len() != 1);
        assert_eq!(edit.set_port(media, 4_000), kept, "both need a line that can be read");
        assert_eq!(edit.set_direction(part, Direction::SendOnly), media < sdp.media_count());
        edit.remove_attributes(part, "ptime");
        edit.add_attribute(part, "rtcp-mux", None);
    }
    let bytes = edit.to_vec();
    let read = Sdp::parse(&bytes).expect("an edited description is one");
    assert_eq!(read.media_count(), sdp.media_count(), "edits keep the media");
    assert_eq!(read.session().attribute("x-fuzz"), Some(&b"1"[..]));
    for media in [0, last] {
        if let Some(section) = read.media(media) {
            assert_eq!(section.direction(), Some(Direction::SendOnly));
            assert!(section.media().is_none_or(|media| media.port == 4_000));
        }
    }
    if was_strict {
        assert_eq!(read.check(), Ok(()), "edits keep a right description right");
    }
    // Lines of types that no edit touched are unchanged.
    let others = |sdp: &Sdp<'_>| {
        let lines = sdp.lines().filter(|line| !b"coma".contains(&line.kind));
        lines.map(|line| (line.kind, line.value.to_owned())).collect::<Vec<_>>()
    };
    assert_eq!(others(&read), others(sdp));
}

fn answers(offer: &Sdp<'_>) {
    let codecs = [Codec::PCMU, Codec::PCMA, Codec::TELEPHONE_EVENT];
    let local = Local {
        session_id: 1,
        session_version: 1,
        address: IpAddr::V4(Ipv4Addr::LOCALHOST),
        port: 4_000,
        direction: Direction::SendRecv,
        codecs: &codecs,
        ptime: None,
    };
    let bytes = answer(offer, &local);
    let read = Sdp::parse(&bytes).expect("an answer is a description");
    assert_eq!(read.media_count(), offer.media_count(), "an answer has a line for each of the offer's");
    let accepted = audio(offer, &codecs);
    for (index, section) in read.all_media().enumerate() {
        let port = section.media().expect("answers can be read").port;
        assert_eq!(port != 0, accepted.as_ref().is_some_and(|audio| audio.media == index));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    const SEEDS: &[&str] = &[
        "v=0\r\no=- 1 1 IN IP4 192.0.2.1\r\ns=-\r\nc=IN IP4 192.0.2.1\r\nb=AS:64\r\nt=0 0\r\nr=7d 1h 0 25h\r\nz=1 -1h\r\n\
         a=sendrecv\r\nm=audio 4000 RTP/AVP 0 8 101\r\na=rtpmap:101 telephone-event/8000\r\na=fmtp:101 0-15\r\n\
         a=ptime:20\r\na=rtcp:4001 IN IP4 192.0.2.1\r\na=candidate:1 1 UDP 1 h 1 typ host\r\na=crypto:1 x y\r\na=mid:1\r\n\
         m=video 4002/2 RTP/SAVPF 99\r\ni=x\r\nc=IN IP6 ff00::1/3\r\na=inactive\r\n",
        "v=0\no=alice 2890844526 2890844526 IN IP4 h\ns= \nt=0 0\nm=audio 49170 RTP/AVP 0\nc=IN IP4 0.0.0.0",
    ];

    /// A seeded generator, so that a failure can be reproduced.
    struct Mutator(u64);

    impl Mutator {
        fn below(&mut self, bound: usize) -> usize {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            (self.0 % bound.max(1) as u64) as usize
        }

        fn mutate(&mut self, data: &mut Vec<u8>) {
            const PIECES: &[&[u8]] = &[
                b"\r\n",
                b"\n",
                b"\r",
                b"m=audio 1 RTP/AVP 0\r\n",
                b"a=sendonly\r\n",
                b"c=IN IP4 0.0.0.0\r\n",
                b"=",
                b" ",
                b":",
                b"/",
                b"\0",
                b"a=rtpmap:0 x/1\r\n",
                b"99999999999999999999",
                b"-",
                b"m=",
                b"v=0\r\n",
                b"a=",
                b"t=",
            ];
            for _ in 0..1 + self.below(6) {
                let at = self.below(data.len() + 1);
                let to = (at + self.below(20)).min(data.len());
                match self.below(5) {
                    0 => drop(data.drain(at..to)),
                    1 => {
                        let piece = PIECES[self.below(PIECES.len())];
                        data.splice(at..at, piece.iter().copied());
                    }
                    2 => {
                        let copy = data[at..to].to_vec();
                        let place = self.below(data.len() + 1);
                        data.splice(place..place, copy);
                    }
                    3 => data.insert(at, self.below(256) as u8),
                    _ => {
                        if let Some(byte) = data.get_mut(at) {
                            *byte ^= 1 << self.below(8);
                        }
                    }
                }
            }
        }
    }

    /// Seeds of the corpus, if it exists.
    fn seeds() -> Vec<Vec<u8>> {
        let mut seeds: Vec<_> = SEEDS.iter().map(|seed| seed.as_bytes().to_vec()).collect();
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let corpora = std::env::var_os("STROWGER_CORPORA").unwrap_or_else(|| "../shared/corpora".into());
        let folder = root.join(corpora).join("fuzz-seeds/sdp");
        match std::fs::read_dir(&folder) {
            Ok(entries) => {
                let mut paths: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
                paths.sort();
                seeds.extend(paths.iter().map(|path| std::fs::read(path).expect("a seed can be read")));
            }
            Err(_) => println!("not there, so its seeds were not tried: {}", folder.display()),
        }
        seeds
    }

    /// `STROWGER_FUZZ_ROUNDS` sets the number of rounds; a failure prints its round, which reproduces it.
    #[test]
    fn mutated_seeds_break_nothing() {
        let seeds = seeds();
        seeds.iter().for_each(|seed| fuzz_sdp(seed));
        let rounds = std::env::var("STROWGER_FUZZ_ROUNDS").ok().and_then(|rounds| rounds.parse().ok());
        for round in 1..rounds.unwrap_or(20_000u64) {
            let mut mutator = Mutator(round.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let mut data = seeds[mutator.below(seeds.len())].clone();
            mutator.mutate(&mut data);
            if let Err(panic) = std::panic::catch_unwind(|| fuzz_sdp(&data)) {
                println!("round {round}: {:?}", String::from_utf8_lossy(&data));
                std::panic::resume_unwind(panic);
            }
        }
    }

    #[test]
    fn seeds_and_arbitrary_bytes() {
        SEEDS.iter().for_each(|seed| fuzz_sdp(seed.as_bytes()));
        let mut mutator = Mutator(1);
        for length in 0..300 {
            let data: Vec<u8> = (0..length).map(|_| mutator.below(256) as u8).collect();
            fuzz_sdp(&data);
            fuzz_sdp(&[b"v=", &data[..]].concat());
        }
    }
}
