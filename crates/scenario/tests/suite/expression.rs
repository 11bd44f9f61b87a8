//! Expressions compared with the C library: `regcomp` and `regexec` are the oracle.
//!
//! The expressions are those of the scenarios in `STROWGER_CORPORA` (default `../shared/corpora` beside the workspace)
//! and our own; the texts are the messages of RFC 3665 and RFC 4475 there and strings generated from each expression.

use std::ffi::CString;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::expression_oracle::corpus::{corpora, corpus_expressions, messages};
use crate::expression_oracle::strings::Numbers;
use crate::expression_oracle::{GENERATED, Library, SPANS, Tally, captures, code, compare, options};
use strowger_scenario::expression::{ErrorKind, Expression, Matcher, Options};

#[test]
fn the_expressions_of_all_scenarios_match_as_in_the_c_library() {
    let Some(corpora) = corpora() else {
        println!("STROWGER_CORPORA is not there: only the project's own expressions were compared");
        return;
    };
    let expressions = corpus_expressions(&corpora);
    let uses: usize = expressions.values().sum();
    let texts = messages(&corpora);
    assert!(expressions.len() > 300 && uses > 1_450, "{} expressions, {uses} uses", expressions.len());
    assert!(texts.len() >= 230, "{} messages", texts.len());
    let work: Vec<_> = expressions.keys().collect();
    let (next, tally) = (AtomicUsize::new(0), Tally::default());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some((pattern, ignore_case)) = work.get(next.fetch_add(1, Ordering::Relaxed)) {
                    compare(pattern, *ignore_case, &texts, GENERATED, &tally);
                }
            });
        }
    });
    let (searches, matches) = (tally.searches.into_inner(), tally.matches.into_inner());
    println!(
        "{uses} uses of {} expressions ({} refused by both), {} messages and {GENERATED} strings each: {searches} searches, {matches} matches",
        expressions.len(),
        tally.refused.into_inner(),
        texts.len(),
    );
    assert!(matches > searches / 3 && matches < searches, "{matches} matches in {searches} searches");
}

#[test]
fn own_expressions_match_as_in_the_c_library() {
    let tally = Tally::default();
    let own: &[&str] = &[
        "",
        "a",
        "(a|ab)(c|bcd)(d*)",
        "(a*)(ab)*(b*)",
        "(a|ab|c|bcd){0,3}(d*)",
        "x*",
        "(a*)*",
        "(a*)+b",
        "((a)|b)*",
        "((a?)(b?))*c",
        "((a))+",
        "(((a|b)))*",
        "a||b",
        "(|a)b",
        "()b",
        "a{,3}b",
        "a{2,}",
        "(a|b){2,4}c",
        "(ab?){3}",
        "^a|b$",
        "(^|,)a(,|$)",
        r"\<tag\>=",
        r"\bsip\b",
        r"sip\B.",
        r"\`a.*z\'",
        r"(\W|^)x(\W|$)",
        r"\s+\S+\s",
        r"\w+@\w+",
        "[]a]+",
        "[^]a]+",
        "[a-]+",
        "[[:alpha:][:digit:]]+",
        "[[.-.]0-9]+",
        "[[=a=]b]+",
        "a.c",
        "a)b",
        "a}b",
        "]",
        r"\.\*\[\(\{\|",
        "(a|aa)(a|aa)(a|aa)",
        "(.*)(;tag=([^;]*))?(.*)",
        "((25[0-5]|2[0-4][0-9]|[01]?[0-9]?[0-9])\\.){3}(25[0-5]|[0-9]{1,2})",
    ];
    for pattern in own {
        for ignore_case in [false, true] {
            compare(pattern.as_bytes(), ignore_case, &[CString::default()], 2_000, &tally);
        }
    }
    assert_eq!(tally.refused.into_inner(), 0);
    assert!(tally.matches.into_inner() > tally.searches.into_inner() / 2);
}

#[test]
fn every_way_through_random_expressions_is_the_library_s() {
    fn alternation(numbers: &mut Numbers, depth: usize, out: &mut Vec<u8>) {
        loop {
            // Without empty branches and loops over groups: the library takes exponential time to compile some
            // expressions that can be empty, and never returns from a search with others.
            for _ in 0..1 + numbers.below(3) {
                let single = numbers.below(12);
                match single {
                    0..3 => out.push(b'a'),
                    3..5 => out.push(b'b'),
                    5 => out.push(b'.'),
                    6 => out.extend(b"[ab]"),
                    7 => out.extend(b"[^a]"),
                    _ if depth == 0 => out.push(b'c'),
                    _ => {
                        out.push(b'(');
                        alternation(numbers, depth - 1, out);
                        out.push(b')');
                    }
                }
                if numbers.below(3) == 0 {
                    let operators = [&b"?"[..], b"{1,2}", b"{2}", b"{,2}", b"{0,2}", b"{1}", b"{0}", b"*", b"+"];
                    out.extend(operators[numbers.below(if single < 8 { 9 } else { 3 })]);
                }
            }
            if numbers.below(3) > 0 {
                return;
            }
            out.push(b'|');
        }
    }
    let tally = Tally::default();
    let mut numbers = Numbers(4_475);
    for _ in 0..4_000 {
        let mut pattern = Vec::new();
        alternation(&mut numbers, 2, &mut pattern);
        let texts: Vec<CString> = (0..20)
            .map(|_| {
                CString::new((0..numbers.below(9)).map(|_| *numbers.pick(b"aaabbc ")).collect::<Vec<u8>>()).unwrap()
            })
            .collect();
        compare(&pattern, false, &texts, 0, &tally);
    }
    assert!(tally.matches.into_inner() > 20_000);
}

#[test]
fn odd_syntax_is_judged_as_by_the_c_library() {
    let parts: [&[u8]; 29] = [
        b"a",
        b"b",
        b"(",
        b")",
        b"|",
        b"*",
        b"+",
        b"?",
        b"{",
        b"}",
        b"1",
        b"2",
        b",",
        b"[",
        b"]",
        b"^",
        b"$",
        b"\\",
        b"-",
        b"[:alpha:]",
        b"[:none:]",
        b"[.a.]",
        b"[=b=]",
        b"[:",
        b":]",
        b".",
        b"\\1",
        b"A",
        b"\\a",
    ];
    let (mut numbers, mut refused) = (Numbers(2_661), 0);
    for _ in 0..40_000 {
        let pattern: Vec<u8> = (0..1 + numbers.below(8)).flat_map(|_| numbers.pick(&parts).iter().copied()).collect();
        let ignore_case = numbers.below(3) == 0;
        let pattern_c = CString::new(pattern.clone()).unwrap();
        let (library, ours) = (Library::new(&pattern_c, ignore_case), Expression::new(&pattern, options(ignore_case)));
        let shown = String::from_utf8_lossy(&pattern);
        assert_eq!(library.is_err(), ours.is_err(), "{shown:?}: library {:?}, ours {:?}", library.err(), ours.err());
        let (Err(library), Err(ours)) = (library, ours) else { continue };
        refused += 1;
        assert!(ours.at <= pattern.len());
        // Inside brackets an expression may have several errors, and each side may name another.
        let in_brackets = [2, 3, 4, 7, 11];
        let ours = code(ours.kind);
        assert!(
            library == ours || in_brackets.contains(&library) && in_brackets.contains(&ours),
            "{shown:?}: {library} {ours}"
        );
    }
    assert!((10_000..35_000).contains(&refused), "{refused} refused");
    for (pattern, kind) in [
        ("*a", ErrorKind::NothingToRepeat),
        ("a|*", ErrorKind::NothingToRepeat),
        ("^*", ErrorKind::NothingToRepeat),
        ("{1", ErrorKind::NothingToRepeat),
        ("a{1", ErrorKind::OpenInterval),
        ("a{x}", ErrorKind::Interval),
        ("a{2,1}", ErrorKind::Interval),
        ("a{40000}", ErrorKind::TooLarge),
        ("(a", ErrorKind::OpenGroup),
        ("[a", ErrorKind::OpenBracket),
        ("[z-a]", ErrorKind::Range),
        ("[[:nope:]]", ErrorKind::Class),
        ("[[.ab.]]", ErrorKind::CollatingElement),
        ("a\\", ErrorKind::LoneBackslash),
        ("\\1(a)", ErrorKind::BackReference),
    ] {
        assert_eq!(Expression::new(pattern.as_bytes(), Options::default()).unwrap_err().kind, kind, "{pattern}");
        assert_eq!(Library::new(&CString::new(pattern).unwrap(), false).err(), Some(code(kind)), "{pattern}");
    }
}

#[test]
fn back_references_match_as_in_the_c_library() {
    for pattern in
        [r"(a+)b\1", r"(a*)\1", r"([a-z]+) \1", r"(.)(.)\2\1", r"tag=([^;]*);tag=\1$", r"(a|b)c\1|d", r"(ab)\1{2}"]
    {
        for text in ["aabaa", "aaaa", "the the", "abba", "tag=x1;tag=x1", "acb bcb d", "ababab", "", "abaab"] {
            let library = Library::new(&CString::new(pattern).unwrap(), false).ok().unwrap();
            let ours = Expression::new(pattern.as_bytes(), Options::default()).unwrap();
            let found = captures(&ours, &mut Matcher::new(), text.as_bytes());
            assert_eq!(found, library.captures(&CString::new(text).unwrap()), "{pattern} on {text:?}");
        }
    }
    let endless =
        Expression::new(br"(a*)*(a*)*(a*)*\1b", Options { moves_max: 100_000, ..Options::default() }).unwrap();
    assert!(!endless.is_match(&[b'a'; 200], &mut Matcher::new()));
}

#[test]
fn a_hundred_thousand_bytes_are_searched_in_linear_time() {
    let mut matcher = Matcher::new();
    let text = vec![b'a'; 100_000];
    let long = std::time::Instant::now();
    for pattern in ["(a*)*b", "(a|aa)+$", "(a*)(a*)(a*)c", "(a+)+[^a]", "[ab]*c|a{3}d", "((a{0,9}){0,9})x"] {
        let expression = Expression::new(pattern.as_bytes(), Options::default()).unwrap();
        let mut spans = [None; SPANS];
        assert_eq!(expression.captures(&text, &mut matcher, &mut spans), pattern.ends_with('$'), "{pattern}");
    }
    // Takes milliseconds; a quadratic search takes minutes.
    assert!(long.elapsed().as_secs() < 20, "{:?}", long.elapsed());
}

#[test]
fn a_small_memory_for_states_changes_no_answer() {
    let small = Options { states_bytes_max: 600, ..Options::default() };
    let pattern = b"(a|b)*a(a|b){6}(c|d)*$";
    let (wide, narrow) =
        (Expression::new(pattern, Options::default()).unwrap(), Expression::new(pattern, small).unwrap());
    let (mut matcher, mut numbers) = (Matcher::new(), Numbers(3_261));
    let mut found = 0;
    for _ in 0..2_000 {
        let text: Vec<u8> = (0..numbers.below(60)).map(|_| *numbers.pick(b"aaabbbcd")).collect();
        let wanted = captures(&wide, &mut matcher, &text);
        assert_eq!(captures(&narrow, &mut matcher, &text), wanted);
        found += usize::from(wanted.is_some());
    }
    assert!(found > 100);
}

#[test]
fn a_nul_ends_text_and_expression() {
    let mut matcher = Matcher::new();
    let expression = Expression::new(b"b\0*", Options::default()).unwrap();
    assert!(expression.is_match(b"ab\0", &mut matcher) && !expression.is_match(b"a\0b", &mut matcher));
}

#[test]
fn too_large_expressions_are_refused_without_overflow() {
    let mut matcher = Matcher::new();
    let kind = |pattern: &str| Expression::new(pattern.as_bytes(), Options::default()).err().map(|error| error.kind);
    assert_eq!(kind(&format!("{}a{}", "(".repeat(300), ")".repeat(300))), Some(ErrorKind::TooLarge));
    assert_eq!(kind(&format!("a{}", "*".repeat(100_000))), Some(ErrorKind::TooLarge));
    assert_eq!(kind("((a{1000}){1000}){1000}"), Some(ErrorKind::TooLarge));
    assert_eq!(kind(&"a*".repeat(2_000)), None);
    for pattern in ["^(x{0,2400})$", "(^|x{0,1200}|y)*z", &format!("{}a{}", "(".repeat(249), ")*".repeat(249))] {
        let expression = Expression::new(pattern.as_bytes(), Options::default()).unwrap();
        let mut spans = [None; SPANS];
        expression.captures(&[b'x'; 1_000], &mut matcher, &mut spans);
    }
    // Any bytes at all: an answer or an error, never a panic.
    let mut numbers = Numbers(77);
    for _ in 0..20_000 {
        let pattern: Vec<u8> =
            (0..numbers.below(20)).map(|_| *numbers.pick(b"ab()[]{}*+?|^$\\.1,-:=\x00\x80\xff<>wWbB'`")).collect();
        let Ok(expression) = Expression::new(&pattern, options(numbers.below(2) == 0)) else { continue };
        let text: Vec<u8> = (0..numbers.below(30)).map(|_| *numbers.pick(b"ab1,\x00\x80\xff -_(")).collect();
        let mut spans = [None; 4];
        if expression.captures(&text, &mut matcher, &mut spans) {
            assert!(spans.iter().flatten().all(|span| span.start <= span.end && span.end <= text.len()));
        }
    }
}

#[test]
fn a_message_is_searched_in_microseconds() {
    let message = b"INVITE sip:bob@biloxi.example.com SIP/2.0\r\nVia: SIP/2.0/UDP client.atlanta.example.com:5060;branch=z9hG4bK74b\
        \r\nMax-Forwards: 70\r\nFrom: Alice <sip:alice@atlanta.example.com>;tag=9fxced76sl\r\nTo: Bob <sip:bob@biloxi.example.com>\
        \r\nCall-ID: 3848276298220188511@atlanta.example.com\r\nCSeq: 2 INVITE\r\nContact: <sip:alice@client.atlanta.example.com>\
        \r\nContent-Type: application/sdp\r\nContent-Length: 151\r\n\r\nv=0\r\no=alice 2890844526 2890844526 IN IP4 a.example.com\
        \r\ns=-\r\nc=IN IP4 192.0.2.101\r\nt=0 0\r\nm=audio 49172 RTP/AVP 0\r\na=rtpmap:0 PCMU/8000\r\n";
    let mut matcher = Matcher::new();
    for pattern in [
        ".*",
        " (.+)",
        "eventlist",
        ".*(;tag=.*)",
        "tag=([[:alnum:].\\-]*)",
        "sip:(.*)>",
        "m=audio [0-9]{1,5} RTP/AVP 0",
        "o=\\S+ [0-9]+ [0-9]+ IN IP[46] \\S+",
        "[[:digit:]]+@",
        "(\\W|^)(Everything\\sis\\sawesome)(\\W|$)",
        "(a|b)*c(d|e)+[xyz]$",
    ] {
        let expression = Expression::new(pattern.as_bytes(), Options::default()).unwrap();
        let mut spans = [None; SPANS];
        let mut time = std::time::Duration::MAX;
        // The quickest of some rounds, because other tests run at the same time.
        for _ in 0..20 {
            let start = std::time::Instant::now();
            for _ in 0..50 {
                std::hint::black_box(expression.captures(std::hint::black_box(message), &mut matcher, &mut spans));
            }
            time = time.min(start.elapsed() / 50);
        }
        println!("{time:>10.1?}  {pattern}");
        assert!(time.as_micros() < 100, "{pattern}: {time:?}");
    }
}
