use super::*;

fn cut(text: &str, environment: &Environment) -> Result<(Template, Names), Fault> {
    let mut names = Names::default();
    let mut keywords = Keywords { names: &mut names, environment, notes: Vec::new() };
    let template = keywords.template(text.as_bytes()).map_err(|wrong| wrong.fault)?;
    Ok((template, names))
}

fn pieces(text: &str) -> Vec<Piece> {
    cut(text, &Environment::default()).map(|(template, _)| template.pieces).expect(text)
}

fn refused(text: &str) -> Fault {
    match cut(text, &Environment::default()) {
        Ok((template, _)) => panic!("{text}: {template:?}"),
        Err(fault) => fault,
    }
}

fn text(bytes: &str, solid: u32) -> Piece {
    Piece::Text(Text { bytes: bytes.as_bytes().into(), solid })
}

#[test]
fn numbers_behind_keywords() {
    assert_eq!(pieces("[local_port+5][local_port-5]"), [Piece::LocalPort(5), Piece::LocalPort(-5)]);
    assert_eq!(pieces("[local_port+1+1]"), [Piece::LocalPort(1)]);
    assert_eq!(pieces("[local_port+0x10]"), [Piece::LocalPort(0)]);
    assert_eq!(pieces("[local_ip+5]"), [Piece::LocalIp]);
    assert_eq!(pieces("[call_number+5]"), [Piece::CallNumber(0)]);
    for wrong in ["[local_port +5]", "[local_port+a]", "[local_port+]", "[local_port-1+5]", "[ local_ip]", "[Local_ip]"]
    {
        assert_eq!(refused(wrong).cause, Cause::Keyword, "{wrong}");
    }
}

#[test]
fn text_between_keywords() {
    assert_eq!(pieces("a\n[service]\nb"), [text("a\r\n", 0), Piece::Service, text("\r\nb", 2)]);
    assert_eq!(pieces("a]b"), [text("a]b", 0)]);
    assert_eq!(pieces("\\x5bdate]"), [text("[date]", 0)]);
    assert_eq!(pieces("<\\xzz \\x4z \\x41>"), [text("<z \u{4} A>", 0)]);
    for wrong in ["a [", "[]", "[local_ip", "[service\"]", &format!("[last_{}]", "x".repeat(300))] {
        refused(wrong);
    }
}

#[test]
fn a_bracket_in_a_bracket_writes_the_inner_first() {
    assert_eq!(pieces("[local_ip [service]]x"), [Piece::Service, text("[local_ip ]x", 0)]);
}

#[test]
fn fields_name_their_file_and_line() {
    let environment = Environment { injections: vec!["x.csv".into(), "y.csv".into()], ..Environment::default() };
    let field = |text: &str| match &cut(text, &environment).expect(text).0.pieces[..] {
        [Piece::Field(field)] => (**field).clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!((field("[field3]").column, field("[field3]").file), (3, 0));
    assert_eq!((field("[field]").column, field("[field 1]").column, field("[field1x]").column), (0, 1, 1));
    assert_eq!(field("[field0 file=\"y.csv\"]").file, 1);
    assert_eq!(
        field("[field0 file=y.csv line=\"2\"]").line.and_then(|l| l.constant().map(<[u8]>::to_vec)),
        Some(b"2".to_vec())
    );
    assert!(
        matches!(field("[field0 line=\"[$v]\"]").line, Some(line) if matches!(line.pieces[..], [Piece::Variable(_)]))
    );
    // SIPp splits at `-1` first, so that such a name cannot be used.
    for wrong in ["[field0 file=\"z.csv\"]", "[field0 file=\"./x.csv\"]", "[field0 file=\"x-1.csv\"]"] {
        assert_eq!(cut(wrong, &environment).err().map(|f| f.cause), Some(Cause::InjectionFile), "{wrong}");
    }
    assert_eq!(refused("[field0]").cause, Cause::InjectionFile);
}

#[test]
fn headers_of_the_last_message() {
    let header = |text: &str| match &pieces(text)[..] {
        [Piece::LastHeader(header)] => (**header).clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!(
        header("[last_Call-ID:]"),
        LastHeader { name: b"Call-ID"[..].into(), known: Name::CallId, whole_line: true }
    );
    assert_eq!(header("[last_f]"), LastHeader { name: b"f"[..].into(), known: Name::Other, whole_line: true });
    assert_eq!(pieces("[last_cseq_number+1]"), [Piece::LastCSeqNumber(1)]);
}

#[test]
fn keys_come_last() {
    let environment = Environment {
        keys: vec![("local_ip".into(), b"x".to_vec()), ("foo-x".into(), b"y".to_vec())],
        ..Environment::default()
    };
    let one = |text: &str| cut(text, &environment).map(|(template, _)| template.pieces);
    assert_eq!(one("[local_ip]"), Ok(vec![Piece::LocalIp]));
    assert_eq!(one("[foo-x]"), Ok(vec![Piece::Generic(1)]));
    assert_eq!(one("[foo-x+1]"), Ok(vec![Piece::Generic(1)]));
}

#[test]
fn parameters() {
    let (template, names) = cut("[fill variable=v text=\"a]b\"][authentication username=joe]", &Environment::default())
        .unwrap_or_else(|fault| panic!("{fault:?}"));
    assert!(matches!(&template.pieces[0], Piece::Fill(fill) if *fill.text == *b"a]b"));
    assert!(matches!(&template.pieces[1], Piece::Authentication(a) if a.username.is_some() && a.password.is_none()));
    assert_eq!(names.lonely(), Some("v"));
    refused("[fill text=x]");
    refused("[file]");
    refused("[$]");
}

#[test]
fn encrypted_media_are_refused() {
    for word in
        ["cryptotag1audio", "cryptosuiteaescm128sha1802video", "cryptokeyparams1audio", "ueaescm128sha1801audio"]
    {
        let fault = cut(&format!("a=crypto:[{word}]"), &Environment::default()).err().expect("it is refused");
        assert!(fault.what.contains("SRTP"), "{fault:?}");
    }
}
