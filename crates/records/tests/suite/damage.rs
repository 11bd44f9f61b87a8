//! A damaged byte destroys only its record. Text of a peer in a payload never counts as a record.

use std::path::Path;

use strowger_records::{Magic, Reader, Writer};

const MAGIC: Magic = *b"RECORDS\x01";
const NAME: [u8; 7] = *b"RECORDS";

type Records = Vec<(u8, Vec<u8>)>;

/// Returns records of several lengths, one without a payload.
fn records() -> Records {
    (0..8).map(|n: u8| (n + 1, (0..n * 5).map(|byte| byte.wrapping_mul(37) ^ n).collect())).collect()
}

/// Writes a file of these records; returns its bytes and the end of each record.
fn written(path: &Path, records: &Records) -> (Vec<u8>, Vec<usize>) {
    let mut writer = Writer::create(path, MAGIC).unwrap();
    let mut ends = vec![writer.start() as usize];
    for (kind, payload) in records {
        writer.write(|out| out.push(*kind, |out| out.extend_from_slice(payload))).unwrap();
        ends.push(writer.length() as usize);
    }
    (std::fs::read(path).unwrap(), ends)
}

fn read(path: &Path) -> (Records, Option<String>) {
    let (mut reader, version) = Reader::open(path, NAME).unwrap();
    assert_eq!(version, 1);
    let mut found = Vec::new();
    while let Some((kind, payload)) = reader.next() {
        found.push((kind, payload.to_vec()));
    }
    (found, reader.damage())
}

fn read_bytes(path: &Path, bytes: &[u8]) -> (Records, Option<String>) {
    std::fs::write(path, bytes).unwrap();
    read(path)
}

fn without(records: &Records, lost: impl Fn(usize) -> bool) -> Records {
    records.iter().enumerate().filter(|(n, _)| !lost(*n)).map(|(_, record)| record.clone()).collect()
}

/// Numbers that are the same in each run.
struct Random(u64);

impl Random {
    fn below(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % most
    }
}

#[test]
fn any_bit_flipped_costs_its_record_alone() {
    let folder = tempfile::tempdir().unwrap();
    let (path, records) = (folder.path().join("a"), records());
    let (whole, ends) = written(&path, &records);
    assert_eq!(read(&path), (records.clone(), None));
    for bit in 0..whole.len() * 8 {
        let mut bytes = whole.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        let (found, damage) = read_bytes(&path, &bytes);
        let hit = (0..records.len()).find(|n| (ends[*n]..ends[n + 1]).contains(&(bit / 8)));
        assert_eq!(found, without(&records, |n| Some(n) == hit), "bit {bit}");
        assert_eq!(damage.is_some(), hit.is_some(), "bit {bit}: {damage:?}");
        if let Some(n) = hit.filter(|n| n + 1 < records.len()) {
            let bytes = ends[n + 1] - ends[n];
            assert_eq!(damage.unwrap(), format!("a damaged record was left out ({bytes} bytes)"));
        }
    }
}

#[test]
fn bytes_cut_out_or_put_in_cost_the_records_that_they_stand_in() {
    let folder = tempfile::tempdir().unwrap();
    let (path, records) = (folder.path().join("a"), records());
    let (whole, ends) = written(&path, &records);
    let mut random = Random(7);
    for round in 0..3_000 {
        let (from, length) = (ends[0] + random.below(whole.len() - ends[0]), random.below(60));
        let mut bytes = whole.clone();
        let to = if round % 2 == 0 {
            // Zeros as in a sparse file, or random bytes.
            let is_zero = round % 4 == 0;
            let garbage: Vec<u8> = (0..length).map(|_| if is_zero { 0 } else { random.below(256) as u8 }).collect();
            bytes.splice(from..from, garbage);
            from
        } else {
            let to = (from + length).min(whole.len());
            bytes.drain(from..to);
            to
        };
        let (found, damage) = read_bytes(&path, &bytes);
        let is_hit = |n: usize| match round % 2 {
            0 => length > 0 && ends[n] < from && from < ends[n + 1],
            _ => from < to && from < ends[n + 1] && ends[n] < to,
        };
        // Zeros among zeros may leave a record unchanged.
        let least = without(&records, is_hit);
        assert!(least.iter().all(|record| found.contains(record)), "round {round}: {length} bytes at {from}");
        let found = found.iter().map(|found| records.iter().position(|record| record == found));
        assert!(found.is_sorted_by(|one, other| one < other), "round {round}: {length} bytes at {from}");
        let is_as_before = length == 0 || whole.starts_with(&bytes) && ends.contains(&bytes.len());
        // Complete records that were cut out leave no trace.
        let leaves_none = round % 2 == 1 && ends.contains(&from) && ends.contains(&to);
        assert!(damage.is_some() || is_as_before || leaves_none, "round {round}: {length} bytes at {from}");
    }
}

#[test]
fn a_file_cut_anywhere_gives_the_records_before() {
    let folder = tempfile::tempdir().unwrap();
    let (path, records) = (folder.path().join("a"), records());
    let (whole, ends) = written(&path, &records);
    for length in ends[0]..=whole.len() {
        let (found, damage) = read_bytes(&path, &whole[..length]);
        assert_eq!(found, without(&records, |n| ends[n + 1] > length), "{length}");
        assert_eq!(damage.is_none(), ends.contains(&length), "{length}");
        let (mut reader, _) = Reader::open(&path, NAME).unwrap();
        while reader.next().is_some() {}
        assert_eq!(reader.is_cut(), !ends.contains(&length), "{length}");
    }
}

/// A peer chooses the payload, knows this program, and has a file of its own; it does not know the salt of this file.
#[test]
fn a_record_inside_a_payload_is_no_record() {
    let folder = tempfile::tempdir().unwrap();
    let (path, other) = (folder.path().join("a"), folder.path().join("b"));
    let mut plain = Vec::new();
    // A record of a plain file: an empty payload of kind 1, whose CRC-32 is the usual one of the byte 1.
    plain.extend([0, 0, 0, 0, 1, 0x1b, 0xdf, 0x05, 0xa5]);
    for round in 0..200 {
        let (bytes, ends) = written(&other, &records());
        let forged = [&plain, &bytes[ends[0]..], &bytes, b"RECORDS\x01", &plain].concat();
        let good = vec![(1, b"first".to_vec()), (2, forged), (3, b"last".to_vec())];
        let (whole, ends) = written(&path, &good);
        for at in [0, 3, 4, 5, 9, 12] {
            let mut damaged = whole.clone();
            damaged[ends[1] + at] ^= 1;
            let (found, damage) = read_bytes(&path, &damaged);
            assert_eq!(found, without(&good, |n| n == 1), "round {round}, byte {at} of the head");
            assert!(damage.is_some());
        }
    }
}

/// Files of earlier versions are read and continued in their format, and not searched, since their checksums are no
/// secret.
#[test]
fn a_plain_file_is_read_and_continued() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    let record = |payload: &[u8], sum: u32| {
        let length = payload.len() as u32;
        [&length.to_le_bytes()[..], b"1", &sum.to_le_bytes(), payload].concat()
    };
    // The checksum of "123456789", the first byte of which is the kind.
    let one = record(b"23456789", 0xcbf4_3926);
    let damaged_sum = record(b"23456789", 0xcbf4_3927);
    let damaged_length = [&[0xff; 4][..], &one[4..]].concat();
    let file = |parts: &[&[u8]]| [&MAGIC[..]].iter().chain(parts).copied().collect::<Vec<_>>().concat();
    let record = (b'1', b"23456789".to_vec());
    let append = || {
        let (mut writer, damage) = Writer::append(&path, MAGIC).unwrap();
        writer.write(|records| records.push(7, |out| out.extend_from_slice(b"new"))).unwrap();
        damage
    };
    let new = (7, b"new".to_vec());
    let (found, damage) = read_bytes(&path, &file(&[&one, &damaged_sum, &one]));
    assert_eq!((found, damage), (vec![record.clone(); 2], Some("a damaged record was left out (17 bytes)".into())));
    let damage = append().unwrap();
    assert!(damage.ends_with("a.damaged-1"), "{damage}");
    assert_eq!(read(&path).0, [record.clone(), record.clone(), new.clone()]);
    // Reading stops at an impossible length. The copy has the bytes that are cut off.
    let whole = file(&[&one, &damaged_length, &one]);
    let (found, damage) = read_bytes(&path, &whole);
    assert_eq!(found, std::slice::from_ref(&record));
    assert!(damage.unwrap().starts_with("a record is damaged; "));
    assert!(append().unwrap().ends_with("a.damaged-2"));
    assert_eq!(read(&path), (vec![record, new], None));
    assert_eq!(std::fs::read(folder.path().join("a.damaged-2")).unwrap(), whole);
    // The first record of an emptied file makes it a salted one.
    let (mut writer, _) = Writer::append(&path, MAGIC).unwrap();
    writer.clear().unwrap();
    writer.write(|records| records.push(1, |_| ())).unwrap();
    assert_eq!(std::fs::read(&path).unwrap().len() as u64, writer.start());
    assert_eq!(read(&path), (vec![(1, vec![])], None));
}

#[test]
fn a_writer_takes_nothing_away_that_can_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let (path, records) = (folder.path().join("a"), records());
    let (whole, ends) = written(&path, &records);
    for byte in ends[0]..whole.len() {
        let mut bytes = whole.clone();
        bytes[byte] ^= 0x55;
        std::fs::write(&path, &bytes).unwrap();
        let (mut writer, damage) = Writer::append(&path, MAGIC).unwrap();
        let damage = damage.unwrap();
        writer.write(|out| out.push(99, |_| ())).unwrap();
        drop(writer);
        let hit = (0..records.len()).find(|n| (ends[*n]..ends[n + 1]).contains(&byte));
        let mut good = without(&records, |n| Some(n) == hit);
        good.push((99, vec![]));
        assert_eq!(read(&path).0, good, "byte {byte}");
        let copy = folder.path().join("a.damaged-1");
        assert!(damage.contains("a.damaged-1"), "{damage}");
        assert_eq!(std::fs::read(&copy).unwrap(), bytes);
        std::fs::remove_file(copy).unwrap();
    }
    // After nine copies the file is continued without one.
    let mut bytes = whole;
    bytes[ends[0]] ^= 1;
    for number in 1..12 {
        std::fs::write(&path, &bytes).unwrap();
        let (_, damage) = Writer::append(&path, MAGIC).unwrap();
        assert_eq!(damage.unwrap().contains("as it was"), number < 10);
    }
}
