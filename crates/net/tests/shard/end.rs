//! What is left of shards that have ended.

use crate::echo::settings;
use crate::shed::Slow;
use std::sync::Arc;
use strowger_core::Transport;
use strowger_net::{Listener, Net};

#[test]
fn what_shards_are_made_from_ends_with_them() {
    let kept = Arc::new(());
    let watched = Arc::downgrade(&kept);
    let listener = Listener::new(Transport::Udp, "127.0.0.1:0".parse().unwrap());
    let factory = move |_, _| {
        let _ = &kept;
        Slow
    };
    let node = Net::bind(settings(2), vec![listener]).unwrap().spawn(factory).unwrap();
    let handle = node.handle().clone();
    assert!(watched.upgrade().is_some());
    drop(node);
    assert!(watched.upgrade().is_none(), "whoever still has a handle keeps it alive");
    drop(handle);
}
