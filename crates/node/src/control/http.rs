//! Orders by HTTP, as JSON; `http_routes.rs` maps requests to orders.
//!
//! A client that sends `control.secret` may give orders. If no secret is set, clients on this machine may give orders,
//! but not web pages in a browser of this machine: a request with an Origin, or with a Host that is not this machine,
//! is refused.

use super::http_routes::{self, HttpRoute, Miss};
use super::openapi;
use super::{CONNECTIONS, Controlled, Reply, SILENCE};
use crate::http::is_of_this_machine;
use crate::http_connections::{self, AdmittedConnection, Connections};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue, ORIGIN, WWW_AUTHENTICATE};
use hyper::service::service_fn;
use hyper::{HeaderMap, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use strowger_config::Secret;
use strowger_core::log_limiter::LogSubject;
use strowger_net::clock;
use subtle::ConstantTimeEq;
use tokio::net::{TcpListener, TcpStream};

/// Answers connections; never ends.
pub(crate) async fn serve(listener: TcpListener, server: Controlled) {
    let open = Arc::<Connections>::default();
    loop {
        let Ok((stream, peer)) = listener.accept().await else {
            // Usually the process has no free descriptor, so an immediate attempt would fail too.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        // A connection beyond the bound is closed unanswered.
        let Some(place) = open.admit(CONNECTIONS, &server.services.crowded.control) else { continue };
        let server = server.clone();
        tokio::spawn(async move {
            place.serve(SILENCE, converse(stream, peer, &server, &place)).await;
        });
    }
}

async fn converse(
    stream: TcpStream,
    peer: SocketAddr,
    server: &Controlled,
    place: &AdmittedConnection,
) -> hyper::Result<()> {
    let answer = service_fn(|request| async move {
        place.asks();
        Ok::<_, Infallible>(answer(server, peer, &request).await)
    });
    http_connections::builder().serve_connection(TokioIo::new(stream), answer).await
}

async fn answer(server: &Controlled, peer: SocketAddr, request: &Request<Incoming>) -> Response<Full<Bytes>> {
    let (uri, method) = (request.uri(), request.method().as_str());
    let admitted = admit(server.shared.policy().config.control.secret.as_ref(), peer.ip(), request.headers());
    if let Err((status, reason)) = admitted {
        if server.shared.log_limiter.allow(LogSubject::Authentication, peer.ip(), clock::now().mono) {
            tracing::warn!(%peer, status = status.as_u16(), reason, "order by HTTP refused");
        }
        let mut response = refused(status, reason);
        if status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        return response;
    }
    if (method, uri.path()) == ("GET", openapi::PATH) {
        return response(StatusCode::OK, &openapi::document());
    }
    match http_routes::find(method, uri.path(), uri.query()) {
        Ok((way, order)) => replied(way, server.carry_out(order).await),
        Err(Miss::Path) => refused(StatusCode::NOT_FOUND, &format!("no order has this path: see {}", openapi::PATH)),
        Err(Miss::Parameter(reason)) => refused(StatusCode::BAD_REQUEST, &reason),
        Err(Miss::Method(methods)) => {
            let methods = methods.join(", ");
            let mut response = refused(StatusCode::METHOD_NOT_ALLOWED, &format!("this path takes {methods}"));
            response.headers_mut().extend(HeaderValue::from_str(&methods).ok().map(|methods| (ALLOW, methods)));
            response
        }
    }
}

/// Checks that the sender of this request may give orders.
fn admit(secret: Option<&Secret>, peer: IpAddr, headers: &HeaderMap) -> Result<(), (StatusCode, &'static str)> {
    let Some(secret) = secret else {
        if !peer.to_canonical().is_loopback() {
            return Err((StatusCode::FORBIDDEN, "another machine may give no orders: set control.secret"));
        }
        return match headers.contains_key(ORIGIN) || !is_of_this_machine(headers.get(HOST)) {
            false => Ok(()),
            true => Err((StatusCode::FORBIDDEN, "a page of the web may give no orders: set control.secret")),
        };
    };
    let shown = headers.get(AUTHORIZATION).map(HeaderValue::as_bytes).and_then(|value| {
        let (scheme, token) = value.split_at_checked(7)?;
        scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
    });
    match shown.is_some_and(|shown| shown.ct_eq(secret.reveal()).into()) {
        true => Ok(()),
        false => Err((StatusCode::UNAUTHORIZED, "control.secret is to be shown: Authorization: Bearer SECRET")),
    }
}

/// Writes a reply as JSON without the name of its kind, because the path implies the kind.
fn replied(way: &HttpRoute, reply: Reply) -> Response<Full<Bytes>> {
    let status = match &reply {
        Reply::Refused(reason) if way.names_one => return refused(StatusCode::NOT_FOUND, reason),
        Reply::Refused(reason) => return refused(StatusCode::CONFLICT, reason),
        Reply::Unavailable(reason) => return refused(StatusCode::SERVICE_UNAVAILABLE, reason),
        Reply::Wrong(_) => StatusCode::UNPROCESSABLE_ENTITY,
        _ => StatusCode::OK,
    };
    match serde_json::to_value(reply) {
        Ok(Value::Object(kind)) => response(status, kind.values().next().unwrap_or(&Value::Null)),
        _ => refused(StatusCode::INTERNAL_SERVER_ERROR, "the reply cannot be written"),
    }
}

fn refused(status: StatusCode, reason: &str) -> Response<Full<Bytes>> {
    response(status, &json!({ "error": reason }))
}

fn response(status: StatusCode, body: &Value) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(format!("{body}\n"))));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reload can remove the secret, but cannot change the address, which other machines may reach.
    #[test]
    fn another_machine_gives_no_orders_without_a_secret() {
        let headers = HeaderMap::from_iter([(HOST, HeaderValue::from_static("localhost"))]);
        let may = |peer: &str| admit(None, peer.parse().expect("an address"), &headers).is_ok();
        assert!(["127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1"].into_iter().all(may));
        assert!(!["192.0.2.1", "0.0.0.0", "2001:db8::1", "::ffff:192.0.2.1"].into_iter().any(may));
    }
}
