use super::*;
use proptest::prelude::*;

fn text(max: usize) -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(any::<u8>(), 0..max)
}

fn address() -> impl Strategy<Value = Option<Received>> {
    proptest::option::of((any::<u8>(), any::<IpAddr>(), any::<u16>(), any::<u32>()).prop_map(
        |(transport, ip, port, zone)| {
            let address = match ip {
                IpAddr::V4(ip) => SocketAddr::new(ip.into(), port),
                IpAddr::V6(ip) => SocketAddrV6::new(ip, port, 0, zone).into(),
            };
            Received { transport, address }
        },
    ))
}

proptest! {
    #[test]
    fn what_is_packed_comes_back(
        texts in [text(300), text(300), text(300), text(300), text(300), text(300)],
        numbers in any::<(u32, u32, u32, u16, u16, u64)>(),
        q in proptest::option::of(0u16..=1000),
        times in (0..=MAX_MS, 0..=MAX_MS),
        received in address(),
        flow in proptest::option::of(any::<FlowBytes>()),
        shared in any::<bool>(),
    ) {
        let [aor, uri, call_id, path, instance, user_agent] = &texts;
        let (cseq, reg_id, flags, listener, node, id) = numbers;
        let binding = Binding {
            aor, uri, call_id, path, instance, user_agent, cseq, q, expires_at: times.0, updated_at: times.1,
            received, flow, listener, node, reg_id, flags,
        };
        let agents = UserAgentTexts::new(usize::from(shared));
        let record = PackedBinding::pack(BindingId(id), &binding, &agents, usize::MAX).unwrap();
        let view = BindingView::new(&record, &agents);
        prop_assert_eq!(view.binding(), binding);
        prop_assert_eq!(view.id(), BindingId(id));
        prop_assert_eq!(agents.len(), usize::from(shared && (1..=255).contains(&user_agent.len())));
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let agents = UserAgentTexts::new(4);
    let long = vec![b'a'; 70_000];
    let pack = |b: Binding<'_>, limit| PackedBinding::pack(BindingId(1), &b, &agents, limit).map(|_| ());
    let all = usize::MAX;
    assert_eq!(
        pack(Binding { uri: &long, ..Binding::EMPTY }, all),
        Err(InvalidBinding::TooLong { bytes: 70_000, limit: 65_535 })
    );
    assert_eq!(
        pack(Binding { user_agent: &long, ..Binding::EMPTY }, all),
        Err(InvalidBinding::TooLong { bytes: 70_000, limit: 65_535 })
    );
    assert_eq!(pack(Binding { q: Some(1001), ..Binding::EMPTY }, all), Err(InvalidBinding::Preference(1001)));
    assert_eq!(
        pack(Binding { uri: &long[..100], ..Binding::EMPTY }, 100),
        Err(InvalidBinding::TooLong { bytes: HEAD + 100, limit: 100 })
    );
    assert_eq!(pack(Binding { uri: &long[..48], ..Binding::EMPTY }, 100), Ok(()));
}
