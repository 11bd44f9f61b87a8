//! `[metrics]`: HTTP pages for Prometheus and supervisors.
//!
//! These pages have no password. A web page in a browser of this machine must not read them by DNS rebinding. So a
//! request from this machine needs a `Host` that names this machine, like an order by HTTP.

use crate::health::Health;
use crate::http_connections::{self, AdmittedConnection, Connections};
use crate::metrics::Metrics;
use crate::shard::Services;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HOST, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};

/// Data of the pages.
#[derive(Clone)]
pub(crate) struct Pages {
    pub(crate) metrics: Metrics,
    pub(crate) health: Arc<Health>,
    pub(crate) services: Arc<Services>,
}

/// Maximum number of open connections.
const CONNECTIONS: usize = 16;
/// Connections beyond these, for the pages of supervisors only.
const RESERVED: usize = 4;
/// Longest time of a connection for the request and for the answer.
const TIME: Duration = Duration::from_secs(5);

/// Answers connections; never ends.
pub(crate) async fn serve(listener: TcpListener, pages: Pages) {
    let open = Arc::<Connections>::default();
    loop {
        let Ok((stream, peer)) = listener.accept().await else {
            // Usually the process has no free descriptor, so an immediate attempt would fail too.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        // A connection beyond the bound is closed unanswered.
        let Some(place) = open.admit(CONNECTIONS + RESERVED, &pages.services.crowded.metrics) else { continue };
        let pages = pages.clone();
        tokio::spawn(async move {
            place.serve(TIME, answer(stream, peer, &pages, &place)).await;
        });
    }
}

async fn answer(stream: TcpStream, peer: SocketAddr, pages: &Pages, place: &AdmittedConnection) -> hyper::Result<()> {
    let page = service_fn(|request| async move {
        let is_crowded = place.asks() > CONNECTIONS;
        Ok::<_, Infallible>(pages.page(&request, peer.ip(), is_crowded))
    });
    http_connections::builder().serve_connection(TokioIo::new(stream), page).await
}

/// Tells whether this Host is a loopback address or localhost. With another name the request may be the result of DNS
/// rebinding.
pub(crate) fn is_of_this_machine(host: Option<&HeaderValue>) -> bool {
    let Some(host) = host.and_then(|host| host.to_str().ok()) else { return false };
    if let Ok(address) = host.parse::<SocketAddr>() {
        return address.ip().is_loopback();
    }
    if let Some(literal) = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        return literal.parse().is_ok_and(|ip: IpAddr| ip.is_loopback());
    }
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    name.eq_ignore_ascii_case("localhost") || name.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
}

impl Pages {
    fn page(&self, request: &Request<Incoming>, peer: IpAddr, is_crowded: bool) -> Response<Full<Bytes>> {
        const TEXT: &str = "text/plain; charset=utf-8";
        let is_read = matches!(request.method(), &Method::GET | &Method::HEAD);
        let is_for_supervisors = matches!(request.uri().path(), "/healthz" | "/readyz");
        let is_rebound = peer.to_canonical().is_loopback() && !is_of_this_machine(request.headers().get(HOST));
        let (status, kind, body) = match request.uri().path() {
            _ if !is_read => (StatusCode::METHOD_NOT_ALLOWED, TEXT, "GET and HEAD only\n".into()),
            _ if !is_for_supervisors && is_rebound => (
                StatusCode::FORBIDDEN,
                TEXT,
                "the Host of a request of this machine is localhost or 127.0.0.1\n".into(),
            ),
            _ if !is_for_supervisors && is_crowded => {
                (StatusCode::SERVICE_UNAVAILABLE, TEXT, "too many connections are open\n".into())
            }
            "/metrics" => (StatusCode::OK, strowger_metrics::CONTENT_TYPE, self.metrics.exposition()),
            "/healthz" => judged(self.health.fault().map_or(Ok(()), Err)),
            "/readyz" => judged(self.health.unready().map_or(Ok(()), Err)),
            _ => (StatusCode::NOT_FOUND, TEXT, "here are /metrics, /healthz and /readyz\n".into()),
        };
        let mut response = Response::new(Full::new(Bytes::from(body)));
        *response.status_mut() = status;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        response
    }
}

fn judged(result: Result<(), String>) -> (StatusCode, &'static str, String) {
    match result {
        Ok(()) => (StatusCode::OK, "text/plain; charset=utf-8", "ok\n".into()),
        Err(reason) => (StatusCode::SERVICE_UNAVAILABLE, "text/plain; charset=utf-8", format!("{reason}\n")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_this_machine_are_its_own() {
        let is_own = |host: &'static str| is_of_this_machine(Some(&HeaderValue::from_static(host)));
        for own in ["127.0.0.1", "127.0.0.1:9061", "127.8.8.8", "[::1]", "[::1]:9061", "localhost", "LOCALHOST:1"] {
            assert!(is_own(own), "{own}");
        }
        for other in
            ["", "evil.example", "evil.example:9061", "192.0.2.1:9061", "localhost.evil.example", "127.0.0.1.nip.io"]
        {
            assert!(!is_own(other), "{other}");
        }
        assert!(!is_of_this_machine(None));
    }
}
