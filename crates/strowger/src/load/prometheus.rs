//! Metrics for Prometheus: one text over HTTP, made once a second, sent to each client.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Context;
use strowger_load::report::{CONTENT_TYPE, exposition};
use strowger_measure::Run;

/// The served text.
pub(super) struct Prometheus {
    text: Arc<Mutex<String>>,
    seconds: u64,
}

impl Prometheus {
    /// Listens from now on, until the process ends.
    pub(super) fn serve(address: SocketAddr) -> anyhow::Result<Self> {
        let listener =
            TcpListener::bind(address).with_context(|| format!("--prometheus cannot listen on {address}"))?;
        let text = Arc::new(Mutex::new(String::new()));
        let shown = text.clone();
        std::thread::Builder::new().name("prometheus".into()).spawn(move || {
            for stream in listener.incoming().flatten() {
                let _ = answer(stream, &shown);
            }
        })?;
        Ok(Self { text, seconds: u64::MAX })
    }

    /// Updates the text, once a second.
    pub(super) fn update(&mut self, run: &Run) {
        if self.seconds != run.seconds() {
            self.seconds = run.seconds();
            *self.text.lock().unwrap_or_else(|e| e.into_inner()) = exposition(run);
        }
    }
}

/// Answers one request, whatever its path.
fn answer(mut stream: TcpStream, text: &Mutex<String>) -> std::io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(2)))?;
    stream.set_write_timeout(Some(Duration::from_secs(2)))?;
    let mut request = Vec::new();
    let mut part = [0; 1_024];
    while !request.windows(4).any(|w| w == b"\r\n\r\n") && request.len() < 16_384 {
        match stream.read(&mut part)? {
            0 => break,
            length => request.extend_from_slice(&part[..length]),
        }
    }
    let body = text.lock().unwrap_or_else(|e| e.into_inner()).clone();
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: {CONTENT_TYPE}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    if !request.starts_with(b"HEAD") {
        stream.write_all(body.as_bytes())?;
    }
    Ok(())
}
