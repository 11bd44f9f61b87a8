//! `[metrics]`: what Prometheus and supervisors ask for by HTTP.

use crate::health::Health;
use crate::metrics::Metrics;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use strowger_server::process_state::ProcessState;
use tokio::net::{TcpListener, TcpStream};

/// What is served; `[metrics]` of the policy has the bounds.
#[derive(Clone)]
pub(crate) struct Pages {
    pub(crate) metrics: Metrics,
    pub(crate) health: Arc<Health>,
    pub(crate) shared: Arc<ProcessState>,
}

/// Answers each connection; never ends.
pub(crate) async fn serve(listener: TcpListener, pages: Pages) {
    // Each connection has one more reference to it.
    let open = Arc::new(());
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // No descriptor is left, as a rule: an attempt at once would fail as this one did.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let settings = pages.shared.policy().config.metrics.clone();
        // Beyond the bound it is closed unanswered.
        if Arc::strong_count(&open) > settings.connections {
            continue;
        }
        let (pages, place) = (pages.clone(), open.clone());
        tokio::spawn(async move {
            let _ = tokio::time::timeout(settings.timeout, answer(stream, &pages)).await;
            drop(place);
        });
    }
}

/// The longest head of a request; hyper takes no shorter bound.
const LONGEST_HEAD: usize = 8_192;

async fn answer(stream: TcpStream, pages: &Pages) -> hyper::Result<()> {
    let page = service_fn(|request| async move { Ok::<_, Infallible>(pages.page(&request)) });
    let mut http = hyper::server::conn::http1::Builder::new();
    http.keep_alive(false).max_buf_size(LONGEST_HEAD).serve_connection(TokioIo::new(stream), page).await
}

impl Pages {
    fn page(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        const TEXT: &str = "text/plain; charset=utf-8";
        let is_read = matches!(request.method(), &Method::GET | &Method::HEAD);
        let (status, kind, body) = match request.uri().path() {
            _ if !is_read => (StatusCode::METHOD_NOT_ALLOWED, TEXT, "GET and HEAD only\n".into()),
            "/metrics" => (StatusCode::OK, strowger_metrics::CONTENT_TYPE, self.metrics.exposition()),
            "/healthz" => {
                judged(self.health.stuck().map_or(Ok(()), |shard| Err(format!("shard {shard} stands still"))))
            }
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
