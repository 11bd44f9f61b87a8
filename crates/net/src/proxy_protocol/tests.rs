//! Headers of both versions: good, wrong, and cut at each byte.

use super::*;

/// Makes a header of version 2.
fn binary(command: u8, family: u8, body: &[u8]) -> Vec<u8> {
    let length = u16::try_from(body.len()).unwrap().to_be_bytes();
    [&SIGNATURE[..], &[command, family], &length, body].concat()
}

fn v4(source: [u8; 4], port: u16) -> Vec<u8> {
    [&source[..], &[198, 51, 100, 7], &port.to_be_bytes(), &5060u16.to_be_bytes()].concat()
}

fn v6(source: &str, port: u16) -> Vec<u8> {
    let [source, there] = [source, "2001:db8::5060"].map(|text| text.parse::<Ipv6Addr>().unwrap().octets());
    [&source[..], &there, &port.to_be_bytes(), &5061u16.to_be_bytes()].concat()
}

fn field(kind: u8, value: &[u8]) -> Vec<u8> {
    [&[kind][..], &u16::try_from(value.len()).unwrap().to_be_bytes(), value].concat()
}

/// Adds the checksum, and `error` to it.
fn with_sum(body: &[u8], error: u32) -> Vec<u8> {
    let blank = binary(0x21, 0x11, &[body, &field(CRC32C, &[0; 4])].concat());
    let sum = crc32c(&blank, blank.len() - 4).wrapping_add(error);
    binary(0x21, 0x11, &[body, &field(CRC32C, &sum.to_be_bytes())].concat())
}

fn good() -> Vec<(Vec<u8>, Option<&'static str>)> {
    let line = |text: &str| text.as_bytes().to_vec();
    let named = v4([192, 0, 2, 1], 40_000);
    let long = field(0xea, &[7; LONGEST - FIXED - 12 - 3]);
    vec![
        (line("PROXY TCP4 192.0.2.1 198.51.100.7 40000 5060\r\n"), Some("192.0.2.1:40000")),
        (line("PROXY TCP4 255.255.255.254 255.255.255.255 65535 65535\r\n"), Some("255.255.255.254:65535")),
        (line("PROXY TCP4 192.0.2.1 198.51.100.7 0 0\r\n"), Some("192.0.2.1:0")),
        (line("PROXY TCP6 2001:db8::1 2001:DB8::2 40000 5061\r\n"), Some("[2001:db8::1]:40000")),
        (line("PROXY TCP6 ::ffff:192.0.2.1 ::1 40000 5061\r\n"), Some("192.0.2.1:40000")),
        (line("PROXY UNKNOWN\r\n"), None),
        (line("PROXY UNKNOWN 192.0.2.1 and \u{fc}\r\n"), None),
        (line(&format!("PROXY UNKNOWN {}\r\n", "f".repeat(91))), None),
        (binary(0x21, 0x11, &named), Some("192.0.2.1:40000")),
        (
            binary(0x21, 0x11, &[&named[..], &field(2, b"sip.example.org"), &field(4, b"")].concat()),
            Some("192.0.2.1:40000"),
        ),
        (binary(0x21, 0x11, &[&named[..], &long].concat()), Some("192.0.2.1:40000")),
        (with_sum(&named, 0), Some("192.0.2.1:40000")),
        (binary(0x21, 0x21, &v6("2001:db8::1", 40_000)), Some("[2001:db8::1]:40000")),
        (binary(0x21, 0x21, &v6("::ffff:192.0.2.1", 40_000)), Some("192.0.2.1:40000")),
        // LOCAL, whose addresses and family are ignored.
        (binary(0x20, 0x00, b""), None),
        (binary(0x20, 0x11, &named), None),
        (binary(0x20, 0xff, b"text"), None),
        // Other protocols than TCP name no peer of a stream.
        (binary(0x21, 0x00, b""), None),
        (binary(0x21, 0x00, b"text"), None),
        (binary(0x21, 0x12, &named), None),
        (binary(0x21, 0x22, &v6("2001:db8::1", 1)), None),
        (binary(0x21, 0x31, &[7; 216]), None),
    ]
}

#[test]
fn each_good_header_names_its_source_and_is_awaited_to_its_last_byte() {
    for (header, source) in good() {
        let shown = String::from_utf8_lossy(&header);
        let source = source.map(|text| text.parse().unwrap());
        let expected = Ok(Some(Header { length: header.len(), source }));
        assert_eq!(read(&header), expected, "{shown}");
        // Data of the peer follow, and may look like another header.
        assert_eq!(read(&[&header[..], b"PROXY TCP4 203.0.113.9 198.51.100.7 1 2\r\n"].concat()), expected, "{shown}");
        for cut in 0..header.len() {
            assert_eq!(read(&header[..cut]), Ok(None), "{cut} bytes of {shown}");
        }
        fuzz_header(&header);
    }
}

#[test]
fn no_other_bytes_are_a_header() {
    use HeaderFault::{Malformed, TooLong};
    let named = v4([192, 0, 2, 1], 40_000);
    let with = |more: &[u8]| binary(0x21, 0x11, &[&named[..], more].concat());
    let line = |text: &str| text.as_bytes().to_vec();
    for (bytes, fault) in [
        (line("OPTIONS sip:example.org SIP/2.0\r\n"), Malformed),
        (line("\x16\x03\x01\x02\0\x01\0\x01"), Malformed),
        (line("\r\n\r\n\r\n"), Malformed),
        (line("proxy TCP4 192.0.2.1 198.51.100.7 40000 5060\r\n"), Malformed),
        (line(" PROXY TCP4 192.0.2.1 198.51.100.7 40000 5060\r\n"), Malformed),
        (line("PROXY\tTCP4 192.0.2.1 198.51.100.7 40000 5060\r\n"), Malformed),
        (line("PROXY  TCP4 192.0.2.1 198.51.100.7 40000 5060\r\n"), Malformed),
        (line("PROXY TCP4 192.0.2.1 198.51.100.7 40000 5060\n"), Malformed),
        (line("PROXY TCP4 192.0.2.1 198.51.100.7 40000 5060\rX"), Malformed),
        (line("PROXY TCP4 192.0.2.1 198.51.100.7 40000 5060 \r\n"), Malformed),
        (line("PROXY TCP4 192.0.2.1 198.51.100.7 40000 5060 1\r\n"), Malformed),
        (line("PROXY TCP4 192.0.2.1 198.51.100.7 40000\r\n"), Malformed),
        (line("PROXY TCP4 192.0.2.01 198.51.100.7 40000 5060\r\n"), Malformed),
        (line("PROXY TCP4 192.0.2 198.51.100.7 40000 5060\r\n"), Malformed),
        (line("PROXY TCP4 192.0.2.1 198.51.100.700 40000 5060\r\n"), Malformed),
        (line("PROXY TCP4 2001:db8::1 2001:db8::2 40000 5060\r\n"), Malformed),
        (line("PROXY TCP6 192.0.2.1 198.51.100.7 40000 5060\r\n"), Malformed),
        (line("PROXY TCP6 [2001:db8::1] 2001:db8::2 40000 5060\r\n"), Malformed),
        (line("PROXY TCP6 2001:db8::1%lo 2001:db8::2 40000 5060\r\n"), Malformed),
        (line("PROXY TCP4 192.0.2.1 198.51.100.7 040000 5060\r\n"), Malformed),
        (line("PROXY TCP4 192.0.2.1 198.51.100.7 +4000 5060\r\n"), Malformed),
        (line("PROXY TCP4 192.0.2.1 198.51.100.7 65536 5060\r\n"), Malformed),
        (line("PROXY TCP4 192.0.2.1 198.51.100.7 40000 65536\r\n"), Malformed),
        (line("PROXY TCP4 localhost 198.51.100.7 40000 5060\r\n"), Malformed),
        (line("PROXY UDP4 192.0.2.1 198.51.100.7 40000 5060\r\n"), Malformed),
        (line("PROXY UNKNOWNS\r\n"), Malformed),
        (line("PROXY \r\n"), Malformed),
        // No peer has these addresses.
        (line("PROXY TCP4 0.0.0.0 198.51.100.7 40000 5060\r\n"), Malformed),
        (line("PROXY TCP4 255.255.255.255 198.51.100.7 40000 5060\r\n"), Malformed),
        (line("PROXY TCP4 224.0.1.75 198.51.100.7 40000 5060\r\n"), Malformed),
        (line("PROXY TCP6 :: 2001:db8::2 40000 5060\r\n"), Malformed),
        (binary(0x21, 0x11, &v4([0; 4], 1)), Malformed),
        (binary(0x21, 0x21, &v6("ff02::1", 1)), Malformed),
        // Lines without an end.
        (line(&format!("PROXY UNKNOWN {}", "f".repeat(93))), TooLong),
        (line(&format!("PROXY UNKNOWN {}\r\n", "f".repeat(92))), TooLong),
        // Other versions, commands, families and protocols.
        (binary(0x11, 0x11, &named), Malformed),
        (binary(0x22, 0x11, &named), Malformed),
        (binary(0x21, 0x41, &named), Malformed),
        (binary(0x21, 0x13, &named), Malformed),
        // Too short for their addresses, and too long for any receiver.
        (binary(0x21, 0x11, &named[..11]), Malformed),
        (binary(0x21, 0x21, &named), Malformed),
        (binary(0x21, 0x31, &[0; 215]), Malformed),
        (with(&field(0xea, &[7; LONGEST - FIXED - 12 - 2])), TooLong),
        (binary(0x20, 0x00, &[0; u16::MAX as usize]), TooLong),
        // Fields that do not fill the header, and wrong checksums.
        (with(&[4]), Malformed),
        (with(&[4, 0]), Malformed),
        (with(&[4, 0, 1]), Malformed),
        (with(&[4, 0, 0, 4]), Malformed),
        (with(&field(CRC32C, &[])), Malformed),
        (with_sum(&named, 1), Malformed),
    ] {
        assert_eq!(read(&bytes), Err(fault), "{}", String::from_utf8_lossy(&bytes));
        fuzz_header(&bytes);
    }
}

/// Check value of the CRC catalogue for CRC-32/ISCSI.
#[test]
fn the_checksum_is_crc32c() {
    assert_eq!(crc32c(b"123456789", 9), 0xe306_9283);
}
