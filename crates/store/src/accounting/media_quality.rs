//! Quality of the media of a call, and its columns.

use super::cdr::{Cdr, Column, Value, ValueKind, column, maybe};
use serde::{Deserialize, Serialize};

/// Quality of the media that a party has sent, as this server has received them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MediaQuality {
    /// Packets, duplicates included; 0: the party was not heard.
    pub packets: u64,
    /// Packets that never came.
    pub lost: u64,
    /// Packets that came after one with a higher sequence number.
    pub reordered: u64,
    /// Duplicates of packets that had come before.
    pub doubled: u64,
    /// Mean interarrival jitter (RFC 3550 section 6.4.1), microseconds.
    pub jitter: u64,
    /// Largest interarrival jitter, microseconds.
    pub max_jitter: u64,
    /// Maximum packet delay: largest time between two packets, microseconds.
    pub max_delay: u64,
    /// Transmission rating R of the E-model (ITU-T G.107) in hundredths, 0 to 10,000; `None`: it is not known for the codec.
    pub rating: Option<u64>,
    /// Mean opinion score in hundredths, 100 to 450; `None`: it is not known for the codec.
    pub score: Option<u64>,
}

/// Quality of the media of caller and callee; `None`: this server did not receive the media of the party.
pub type PartyMedia = [Option<MediaQuality>; 2];

const CALLER: usize = 0;
const CALLEE: usize = 1;

/// Returns a figure of a party.
fn figure(cdr: &Cdr, party: usize, figure: impl Fn(&MediaQuality) -> u64) -> Value<'static> {
    maybe(cdr.media[party].as_ref().map(figure))
}

/// Returns a figure of a party that the codec may lack.
fn optional(cdr: &Cdr, party: usize, figure: impl Fn(&MediaQuality) -> Option<u64>) -> Value<'static> {
    maybe(cdr.media[party].as_ref().and_then(figure))
}

const KIND: ValueKind = ValueKind::MaybeNumber;

/// Columns of the media of a call.
pub(super) const MEDIA: [Column<Cdr>; 18] = [
    column("caller_packets", KIND, |cdr| figure(cdr, CALLER, |media| media.packets)),
    column("caller_lost", KIND, |cdr| figure(cdr, CALLER, |media| media.lost)),
    column("caller_reordered", KIND, |cdr| figure(cdr, CALLER, |media| media.reordered)),
    column("caller_doubled", KIND, |cdr| figure(cdr, CALLER, |media| media.doubled)),
    column("caller_jitter_us", KIND, |cdr| figure(cdr, CALLER, |media| media.jitter)),
    column("caller_max_jitter_us", KIND, |cdr| figure(cdr, CALLER, |media| media.max_jitter)),
    column("caller_max_delay_us", KIND, |cdr| figure(cdr, CALLER, |media| media.max_delay)),
    column("caller_r_x100", KIND, |cdr| optional(cdr, CALLER, |media| media.rating)),
    column("caller_mos_x100", KIND, |cdr| optional(cdr, CALLER, |media| media.score)),
    column("callee_packets", KIND, |cdr| figure(cdr, CALLEE, |media| media.packets)),
    column("callee_lost", KIND, |cdr| figure(cdr, CALLEE, |media| media.lost)),
    column("callee_reordered", KIND, |cdr| figure(cdr, CALLEE, |media| media.reordered)),
    column("callee_doubled", KIND, |cdr| figure(cdr, CALLEE, |media| media.doubled)),
    column("callee_jitter_us", KIND, |cdr| figure(cdr, CALLEE, |media| media.jitter)),
    column("callee_max_jitter_us", KIND, |cdr| figure(cdr, CALLEE, |media| media.max_jitter)),
    column("callee_max_delay_us", KIND, |cdr| figure(cdr, CALLEE, |media| media.max_delay)),
    column("callee_r_x100", KIND, |cdr| optional(cdr, CALLEE, |media| media.rating)),
    column("callee_mos_x100", KIND, |cdr| optional(cdr, CALLEE, |media| media.score)),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accounting::Row;

    /// Returns the named values of the columns of media.
    fn values(media: PartyMedia) -> Vec<(&'static str, Option<u64>)> {
        let row = Row::Cdr(Cdr { media, ..Cdr::default() });
        let names = row.table().columns().into_iter().map(|(name, _)| name);
        let number = |value: &Value<'_>| match value {
            Value::Number(number) => Some(*number),
            _ => None,
        };
        let values = row.values();
        let all = names.zip(values.iter().map(number));
        all.filter(|(name, _)| MEDIA.iter().any(|column| column.name == *name)).collect()
    }

    #[test]
    fn each_party_has_its_columns() {
        let caller = MediaQuality {
            packets: 1,
            lost: 2,
            reordered: 3,
            doubled: 4,
            jitter: 5,
            max_jitter: 6,
            max_delay: 7,
            rating: Some(8),
            score: Some(9),
        };
        let of = |party: &str, numbers: [Option<u64>; 9]| {
            let names = ["packets", "lost", "reordered", "doubled", "jitter_us", "max_jitter_us", "max_delay_us"];
            let names = names.into_iter().chain(["r_x100", "mos_x100"]);
            names.zip(numbers).map(|(name, number)| (format!("{party}_{name}"), number)).collect::<Vec<_>>()
        };
        let named = |media: PartyMedia| {
            values(media).into_iter().map(|(name, value)| (name.to_owned(), value)).collect::<Vec<_>>()
        };
        let counted = std::array::from_fn(|place| Some(place as u64 + 1));
        assert_eq!(named([Some(caller), None]), [of("caller", counted), of("callee", [None; 9])].concat());
        // A party that was not heard, with a codec that has no score.
        let silent = [Some(0), Some(0), Some(0), Some(0), Some(0), Some(0), Some(0), None, None];
        let callee = Some(MediaQuality::default());
        assert_eq!(named([None, callee]), [of("caller", [None; 9]), of("callee", silent)].concat());
    }

    #[test]
    fn rows_of_an_earlier_version_have_no_media() {
        let rows = Row::read_all(br#"[{"cdr":{"identity":"1","codecs":"PCMA"}}]"#).expect("a row");
        let media = [Some(MediaQuality { packets: 7, score: Some(441), ..MediaQuality::default() }), None];
        let Row::Cdr(read) = &*rows[0] else { panic!("{rows:?}") };
        assert_eq!((read.media, &*read.codecs), ([None; 2], "PCMA"));
        let written = [Box::new(Row::Cdr(Cdr { media, ..read.clone() }))];
        assert_eq!(Row::read_all(&Row::write_all(&written)), Some(written.to_vec()));
    }
}
