//! The way from a server to others of its cluster: what the crate `server` asks for as a
//! [`server::Line`], made of the crate `client`, which it cannot know.
//!
//! There is one session with each server that is asked, made when it is first asked something and
//! kept; the transport makes broken connections again. If a server has moved, or nothing has been
//! heard of it for the time of a whole request, the session is given up and begun anew.

use crate::address::Address;
use crate::connect::{host_name, resolve};
use base::ServerId;
use base::limits::{CONNECTIONS_MAX, SERVER_ANSWER_TIME_MAX};
use client::transport::{Call, CallError, Endpoint, Transport, TransportOptions};
use server::{Answer, Elsewhere, Line};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use wire::message::{Reply, Request};

/// A session with one server, and where it was when that began.
#[derive(Default)]
struct Session {
    addresses: Vec<String>,
    transport: Option<Transport>,
}

impl Session {
    fn give_up(&mut self) {
        if let Some(transport) = self.transport.take() {
            transport.abandon();
        }
    }
}

/// See the module's head.
#[derive(Default)]
pub(crate) struct Sessions(Mutex<HashMap<Option<ServerId>, Arc<tokio::sync::Mutex<Session>>>>);

impl std::fmt::Debug for Sessions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sessions").finish_non_exhaustive()
    }
}

impl Line for Sessions {
    fn ask(&self, to: Elsewhere, request: Request, time_max: Duration) -> Answer<'_> {
        Box::pin(async move {
            let asked = tokio::time::timeout(time_max, self.go(to, request));
            let late = || format!("no answer within {} s", time_max.as_secs());
            asked.await.unwrap_or_else(|_| Err(late()))
        })
    }
}

impl Sessions {
    async fn go(&self, to: Elsewhere, request: Request) -> Result<Reply, String> {
        let session = {
            let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            all.entry(to.server).or_default().clone()
        };
        let transport = {
            let mut session = session.lock().await;
            if session.addresses != to.addresses {
                // Where it was, nobody is asked any more.
                session.give_up();
            }
            match &session.transport {
                Some(transport) => transport.clone(),
                None => {
                    let transport = connect(&to).await?;
                    session.addresses = to.addresses;
                    session.transport.insert(transport).clone()
                }
            }
        };
        let pending = match request {
            Request::Object(request) => transport.submit_object(request, Call::metadata()),
            other => transport.submit(&other, Call::metadata()),
        };
        match pending.response().await {
            Ok(response) => Ok(response.reply),
            Err(CallError::Refused(refusal)) => Ok(Reply::Refused(refusal)),
            Err(error) => {
                session.lock().await.give_up();
                Err(error.to_string())
            }
        }
    }
}

async fn connect(to: &Elsewhere) -> Result<Transport, String> {
    let mut addresses = Vec::new();
    let mut why = "it has no address".to_owned();
    for address in &to.addresses {
        let resolved = match address.parse::<Address>() {
            Ok(address) => resolve(&address).await.map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        match resolved {
            Ok(resolved) => addresses.extend(resolved),
            Err(error) => why = error,
        }
    }
    if addresses.is_empty() {
        return Err(why);
    }
    let endpoint = Endpoint {
        name: to.addresses.join(", "),
        addresses,
        credential: to.credential.clone(),
        // A ticket's key may be on the way.
        plain: false,
        host: host_name(),
        server: to.server,
    };
    let options = TransportOptions {
        request_time_max: SERVER_ANSWER_TIME_MAX,
        connections: 2.min(CONNECTIONS_MAX),
        ..TransportOptions::default()
    };
    let connected = Transport::connect(endpoint, options).await;
    connected.map_err(|error| error.to_string())
}
