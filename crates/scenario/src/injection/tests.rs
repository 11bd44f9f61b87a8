//! Lines, columns and orders of injection files.

use super::*;

fn injection(text: &str) -> Injection {
    Injection::new("data.csv".into(), text.into(), InjectionOptions::default()).unwrap()
}

fn indexed(text: &str, index: u32) -> Injection {
    Injection::new("/a/data.csv".into(), text.into(), InjectionOptions { index: Some(index), ..Default::default() })
        .unwrap()
}

fn refusal(text: &str) -> String {
    Injection::new("data.csv".into(), text.into(), InjectionOptions::default()).unwrap_err().to_string()
}

fn read(injection: &Injection, line: u32, column: u32) -> String {
    let mut out = Vec::new();
    injection.write_field(line, column, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

fn picks(injection: &Injection, calls: usize) -> Vec<u32> {
    (0..calls).map(|_| injection.pick(0, 0).unwrap().unwrap()).collect()
}

#[test]
fn lines_come_in_turn_and_fields_by_number() {
    let file = injection("SEQUENTIAL\na;b;c\nd;;f\n");
    assert_eq!(picks(&file, 5), [0, 1, 0, 1, 0]);
    assert_eq!(
        (read(&file, 0, 0), read(&file, 0, 2), read(&file, 1, 1), read(&file, 1, 2)),
        ("a".into(), "c".into(), "".into(), "f".into())
    );
    // Missing fields are empty.
    assert_eq!((read(&file, 0, 3), read(&file, 7, 0)), (String::new(), String::new()));
    let twelve = injection("SEQUENTIAL\n0;1;2;3;4;5;6;7;8;9;10;11");
    assert_eq!((read(&twelve, 0, 10), read(&twelve, 0, 11)), ("10".into(), "11".into()));
}

#[test]
fn comments_empty_lines_and_line_ends_are_sipp_s() {
    let file = injection("# SEQUENTIAL;x\n#x;y\na\n #z\n  \nb\n\nc\n");
    assert_eq!(file.lines(), 4);
    assert_eq!(
        (read(&file, 0, 0), read(&file, 1, 0), read(&file, 2, 0), read(&file, 3, 0)),
        ("a".into(), " #z".into(), "  ".into(), "b".into())
    );
    let carriage_returns = "SEQUENTIAL\r\na;b\r\n\r\nc;d\r\n";
    let kept = injection(carriage_returns);
    assert_eq!((kept.lines(), read(&kept, 0, 1), read(&kept, 1, 0)), (3, "b\r".into(), "\r".into()));
    let options = InjectionOptions { strip_carriage_return: true, ..Default::default() };
    let stripped = Injection::new("x".into(), carriage_returns.into(), options).unwrap();
    assert_eq!((stripped.lines(), read(&stripped, 0, 1)), (1, "b".into()));
}

#[test]
fn orders() {
    let random = injection("RANDOM SEQUENTIAL\na\nb\nc\n");
    assert_eq!(random.order(), LineOrder::Random);
    assert_eq!([0, 1, 5].map(|entropy| random.pick(0, entropy).unwrap()), [Some(0), Some(1), Some(2)]);
    let user = injection("USERS\na\nb\n");
    assert_eq!(
        (user.pick(0, 9).unwrap(), user.pick(1, 9).unwrap(), user.pick(2, 9).unwrap()),
        (None, Some(0), Some(1))
    );
    assert_eq!(
        user.pick(3, 9).unwrap_err().to_string(),
        "data.csv has 2 lines, but user 3 wants one of its own; use -users 2 at most, or add lines"
    );
}

#[test]
fn printf_makes_lines() {
    let file = injection(
        "PRINTF=5,SEQUENTIAL,PRINTFOFFSET=10,PRINTFMULTIPLE=5\nu%03d;p%d-%d;x\nv%5d|%-5d|%.3d;%0-5d|%07.2d\n",
    );
    assert_eq!((file.lines(), picks(&file, 6)), (5, vec![0, 1, 2, 3, 4, 0]));
    assert_eq!((read(&file, 0, 0), read(&file, 2, 1), read(&file, 4, 2)), ("u010".into(), "p20-20".into(), "x".into()));
    assert_eq!((read(&file, 1, 0), read(&file, 3, 1)), ("v   15|15   |015".into(), "25   |     25".into()));
    assert_eq!(read(&file, 5, 0), "");
    let below = injection("SEQUENTIAL,PRINTF=3,PRINTFOFFSET=-17,PRINTFMULTIPLE=-2\n%03d;%05d;%d\n");
    assert_eq!(
        (read(&below, 0, 0), read(&below, 1, 1), read(&below, 2, 2)),
        ("-17".into(), "-0019".into(), "-21".into())
    );
    assert_eq!(injection("SEQUENTIAL,PRINTF=0x10\r\n%d\r\n").lines(), 16);
    for wrong in ["%u", "%+d", "%ld", "%", "a%05", "%%", "%3$d", "%1.2.x"] {
        let file = injection(&format!("SEQUENTIAL,PRINTF=2\n{wrong};b\n"));
        let mut out = b"kept".to_vec();
        let error = file.write_field(0, 0, &mut out).unwrap_err().to_string();
        assert!(error.contains(wrong) && out == b"kept", "{error}");
        assert_eq!(read(&file, 0, 1), "b");
    }
    assert!(file.insert(b"x").is_err() && file.replace(0, b"x").is_err() && file.index(0).is_err());
}

#[test]
fn refusals_name_the_cure() {
    assert!(refusal("sequential\na\n").contains("data.csv:1: the first line must hold SEQUENTIAL"));
    assert!(refusal("").contains("data.csv:1:") && refusal("\nSEQUENTIAL\na").contains("data.csv:1:"));
    assert!(
        refusal("SEQUENTIAL\n").contains("no line of values") && refusal("RANDOM\n\na").contains("no line of values")
    );
    for wrong in [
        "PRINTF = 4",
        "PRINTFOFFSET=2",
        "PRINTFOFFSET=2,PRINTF=3",
        "PRINTF=x",
        "PRINTF=3;x",
        "PRINTF=3 x",
        "PRINTF=3,PRINTFMULTIPLE",
    ] {
        assert!(refusal(&format!("SEQUENTIAL,{wrong}\na\n")).contains("PRINTF=100"), "{wrong}");
    }
    assert!(refusal("SEQUENTIAL,PRINTF=0\na\n").contains("PRINTF=0"));
    let absent = Injection::load(Path::new("/nonexistent/a.csv"), InjectionOptions::default()).unwrap_err();
    assert!(absent.to_string().starts_with("/nonexistent/a.csv: "));
}

#[test]
fn the_last_duplicate_is_looked_up() {
    let file = indexed("SEQUENTIAL\nbob;1\nalice;2\nbob;3\n", 0);
    assert_eq!(
        (file.look_up(b"bob").unwrap(), file.look_up(b"alice").unwrap(), file.look_up(b"eve").unwrap()),
        (Some(2), Some(1), None)
    );
    assert_eq!(indexed("SEQUENTIAL\na\nb\n", 7).look_up(b"").unwrap(), Some(1));
    assert!(injection("SEQUENTIAL\na\n").look_up(b"a").unwrap_err().to_string().contains("-infindex"));
    assert!(file.answers_to(b"data.csv") && !file.answers_to(b"/a/data.csv"));
}

#[test]
fn inserted_lines_are_found_and_given_out() {
    let file = indexed("SEQUENTIAL\nbob;1\n", 0);
    assert_eq!(picks(&file, 1), [0]);
    file.insert(b"eve;9").unwrap();
    file.insert(b"bob;8").unwrap();
    assert_eq!(
        (file.look_up(b"eve").unwrap(), file.look_up(b"bob").unwrap(), read(&file, 1, 1)),
        (Some(1), Some(2), "9".into())
    );
    assert_eq!(picks(&file, 4), [0, 1, 2, 0]);
}

#[test]
fn replaced_lines_lose_their_old_key() {
    let file = indexed("SEQUENTIAL\nbob;1\nbob;2\n", 0);
    file.replace(1, b"x;9").unwrap();
    assert_eq!((file.look_up(b"bob").unwrap(), file.look_up(b"x").unwrap()), (None, Some(1)));
    assert_eq!((read(&file, 1, 0), read(&file, 1, 1), read(&file, 0, 0)), ("x".into(), "9".into(), "bob".into()));
    file.insert(b"y").unwrap();
    file.replace(2, b"z").unwrap();
    assert_eq!((file.look_up(b"y").unwrap(), file.look_up(b"z").unwrap(), file.lines()), (None, Some(2), 3));
    assert!(file.replace(5, b"x").unwrap_err().to_string().contains("no line 5"));
    assert!(file.replace(-1, b"x").is_err());
    let other = indexed("SEQUENTIAL\nbob;1\nbob;2\n", 0);
    other.replace(0, b"x;9").unwrap();
    assert_eq!(other.look_up(b"bob").unwrap(), Some(1));
}

#[test]
fn threads_share_a_file() {
    let file = indexed("SEQUENTIAL\na0\na1\na2\n", 0);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let file = &file;
            scope.spawn(move || {
                for round in 0..200 {
                    let key = format!("t{thread}-{round}");
                    file.insert(key.as_bytes()).unwrap();
                    let line = file.look_up(key.as_bytes()).unwrap().unwrap();
                    assert_eq!(read(file, line, 0), key);
                    assert!(file.pick(0, 0).unwrap().unwrap() < file.lines());
                }
            });
        }
    });
    assert_eq!(file.lines(), 803);
}
