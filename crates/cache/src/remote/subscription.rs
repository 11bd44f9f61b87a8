//! Messages published on channels, on a separate connection: a subscribed connection does nothing else.

use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Notify;

use super::dial::{Stream, dial};
use super::resp::{self, Front, Reply};
use super::world::World;
use crate::engine::Subscriber;

/// Interval of liveness checks of the server: there may be no message for an hour.
const PING: Duration = Duration::from_secs(2);
/// Pause between two attempts to reach a server.
const PAUSE: Duration = Duration::from_millis(200);

/// Bytes of a message in addition to channel and text: three texts in an array, their lengths, and its type.
const AROUND: usize = 128;

/// Channel and its subscriber.
type Subscribed = (Box<[u8]>, Arc<dyn Subscriber>);

/// Channels and their subscribers.
#[derive(Default)]
pub(super) struct Subscriptions {
    list: Mutex<Vec<Subscribed>>,
    changed: Notify,
}

impl Subscriptions {
    fn list(&self) -> MutexGuard<'_, Vec<Subscribed>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add(&self, channel: &[u8], subscriber: Arc<dyn Subscriber>) {
        self.list().push((channel.into(), subscriber));
        self.changed.notify_one();
    }

    fn len(&self) -> usize {
        self.list().len()
    }

    /// Calls the subscribers of a channel, without the lock.
    fn call(&self, channel: &[u8], call: impl Fn(&dyn Subscriber)) {
        let list = self.list();
        let of_channel: Vec<_> =
            list.iter().filter(|(own, _)| **own == *channel).map(|(_, subscriber)| subscriber.clone()).collect();
        drop(list);
        of_channel.iter().for_each(|subscriber| call(&**subscriber));
    }
}

/// Maintains a connection for all subscriptions, once there are any.
pub(super) async fn keep(world: Rc<World>) {
    let subscriptions = &world.shared.subscriptions;
    loop {
        while subscriptions.len() == 0 {
            subscriptions.changed.notified().await;
        }
        for server in world.servers() {
            match dial(&world.shared.settings, &server).await {
                Ok(stream) => {
                    let reason = listen(&world, stream).await;
                    tracing::debug!(cache = world.shared.settings.name, %server, reason, "subscription lost");
                    break;
                }
                Err(error) => {
                    tracing::debug!(cache = world.shared.settings.name, %server, %error, "no subscription");
                }
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Receives messages until the connection ends; returns the reason.
async fn listen(world: &World, mut stream: Box<dyn Stream>) -> &'static str {
    let subscriptions = &world.shared.subscriptions;
    // Length of a message, with its channel and framing.
    let longest = world.shared.settings.value + world.shared.settings.key + AROUND;
    let (mut sent, mut input, mut output) = (0, Vec::new(), Vec::new());
    let mut heard = Instant::now();
    let mut asked = Instant::now();
    loop {
        for (channel, _) in &subscriptions.list()[sent..] {
            resp::write(&[b"SUBSCRIBE", channel], &mut output);
            sent += 1;
        }
        if asked.elapsed() >= PING {
            // No reply since the last check.
            if heard < asked {
                return "the server does not answer";
            }
            asked = Instant::now();
            resp::write(&[b"PING"], &mut output);
        }
        if !output.is_empty() {
            if stream.write_all(&output).await.is_err() || stream.flush().await.is_err() {
                return "it cannot be written to";
            }
            output.clear();
        }
        tokio::select! {
            read = stream.read_buf(&mut input) => {
                if !matches!(read, Ok(1..)) {
                    return "the server closed it";
                }
                heard = Instant::now();
                loop {
                    match resp::read(&input, world.shared.settings.value) {
                        Front::More if input.len() > longest => return "a message without an end",
                        Front::More => break,
                        Front::Broken(reason) => return reason,
                        Front::Whole(reply, end) => {
                            if !give(subscriptions, &input, &reply) {
                                return "no message, and nothing that was asked for";
                            }
                            input.drain(..end);
                        }
                    }
                }
            }
            () = subscriptions.changed.notified() => {}
            () = tokio::time::sleep(PING) => {}
        }
    }
}

/// Handles a reply to a subscribed connection; false: it is none.
fn give(subscriptions: &Subscriptions, input: &[u8], reply: &Reply) -> bool {
    let Reply::Array(items) = reply else { return false };
    let text = |place: usize| match items.get(place) {
        Some(Reply::Bulk(text)) => Some(&input[text.clone()]),
        _ => None,
    };
    match (text(0), text(1), text(2)) {
        (Some(b"message"), Some(channel), Some(message)) => {
            subscriptions.call(channel, |subscriber| subscriber.published(channel, message));
        }
        (Some(b"subscribe"), Some(channel), None) => {
            subscriptions.call(channel, |subscriber| subscriber.began(channel));
        }
        (Some(b"pong"), ..) => {}
        _ => return false,
    }
    true
}
