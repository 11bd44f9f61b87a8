//! A cache of credentials that is frozen or gone: each request has its stated answer in time.

use std::time::Duration;

use strowger_lab::backend;
use strowger_tests::credential_cache::{
    CHALLENGED, PASSWORD, SOON, TIMEOUT, VERIFIED, add_alice, message, of, register, registers, setup, timed, writes,
};
use strowger_tests::program::{REDIS, have};
use strowger_tests::{undisturbed, wait};

/// How much later than the time of the cache an answer may come.
const LATE: Duration = Duration::from_millis(100);

/// What the cache does not say in time has its stated answer, and when it answers again all is well.
#[test]
fn a_cache_that_is_frozen_or_gone_has_its_stated_answers() {
    if !have(&[REDIS]) {
        return;
    }
    undisturbed(|| {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut redis = backend::redis(folder.path()).expect("it starts");
        let cache = of("redis", &redis);
        for (lines, registered) in [("", 500), ("auth.credential_cache_required = false", 200)] {
            let server = setup(&cache, lines).start();
            add_alice(&server);
            assert_eq!(message(&server, PASSWORD), VERIFIED);
            redis.freeze();
            for (request, stated) in [(true, registered), (false, 500)] {
                let (status, took) = match request {
                    true => timed(&server, registers(600), PASSWORD),
                    false => timed(&server, writes, PASSWORD),
                };
                assert_eq!(status, stated, "{lines}");
                assert!(took < TIMEOUT + LATE, "{took:?}");
            }
            redis.thaw();
            assert!(wait::until(SOON, || register(&server, PASSWORD) == 200 && message(&server, PASSWORD) == VERIFIED));
            backend::stop_cache(&mut redis).expect("it ends");
            let is_stated = || register(&server, PASSWORD) == registered && message(&server, PASSWORD) == 500;
            assert!(wait::until(SOON, is_stated), "{lines}");
            redis.start_again().expect("it starts");
            // It has lost what it had.
            assert!(wait::until(SOON, || message(&server, PASSWORD) == CHALLENGED));
            assert!(wait::until(SOON, || register(&server, PASSWORD) == 200 && message(&server, PASSWORD) == VERIFIED));
        }
    });
}
