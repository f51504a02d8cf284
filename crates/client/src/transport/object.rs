//! Requests to a storage server, and sessions whose contents lie in stores.

use super::state::Answers;
use super::{Call, Endpoint, Pending, Shared, Transport, TransportOptions};
use base::{ServerId, WriteVerifier};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use wire::message::{ExpectedObjects, Features, ObjectRequest, Request, Welcome, encode};

/// The runs of all storage servers of a volume, told as one verifier: another one says that one of
/// them has been started anew, and that something may be lost there.
#[derive(Debug, Default)]
pub(crate) struct Runs(Mutex<Known>);

/// What was done in runs of which one is over by now; never what all are together. A run that is
/// over is not noted: what is done in the latest one would seem to be done in another.
pub(crate) const OVER: WriteVerifier = WriteVerifier([u8::MAX; 16]);

#[derive(Debug, Default)]
struct Known {
    runs: BTreeMap<ServerId, WriteVerifier>,
    /// How often one was another than before.
    changes: u128,
}

impl Known {
    fn together(&self) -> WriteVerifier {
        WriteVerifier(self.changes.to_le_bytes())
    }
}

impl Runs {
    /// A server says its verifier; what all are together then. One that is heard for the first time
    /// has lost nothing.
    pub(crate) fn note(&self, server: ServerId, verifier: WriteVerifier) -> WriteVerifier {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = known.runs.insert(server, verifier);
        if before.is_some_and(|before| before != verifier) {
            known.changes += 1;
        }
        known.together()
    }

    /// What all are together, if each of these is the latest run of its server that was heard of:
    /// what was done in an earlier one may be lost.
    pub(crate) fn current(&self, runs: &[(ServerId, WriteVerifier)]) -> Option<WriteVerifier> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (server, verifier) in runs {
            if *known.runs.entry(*server).or_insert(*verifier) != *verifier {
                return None;
            }
        }
        Some(known.together())
    }

    /// What all are together, as far as they were heard.
    pub(crate) fn together(&self) -> WriteVerifier {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.together()
    }
}

impl Shared {
    /// Whether what was written before is still there, where this session's contents lie.
    pub(super) fn verifier(&self, welcome: &Welcome) -> WriteVerifier {
        match self.writes_objects.get() {
            Some((runs, server)) => runs.note(*server, welcome.store_verifier),
            None => welcome.write_verifier,
        }
    }
}

impl Transport {
    /// What is written goes to objects: the verifiers of their servers, of which this session's is
    /// one, say from now on what may be lost. What all are together with the run in which this
    /// session has begun: another one if others were begun in an earlier run.
    pub(crate) fn write_objects(&self, runs: &Arc<Runs>, server: ServerId) -> WriteVerifier {
        let shared = &self.shared;
        let _ = shared.writes_objects.set((runs.clone(), server));
        let run = {
            let mut state = shared.lock();
            state.download.expect_devices();
            state.upload.expect_devices();
            state.store_verifier
        };
        run.map_or_else(|| runs.together(), |run| runs.note(server, run))
    }

    /// How another server of the cluster is reached, and in which way it is talked to.
    pub(crate) fn elsewhere(
        &self,
        server: ServerId,
        name: String,
        addresses: Vec<SocketAddr>,
    ) -> (Endpoint, TransportOptions) {
        let endpoint = Endpoint {
            name,
            addresses,
            server: Some(server),
            ..self.shared.endpoint.clone()
        };
        let options = TransportOptions {
            volume: None,
            line: (None, None),
            ..self.shared.options.clone()
        };
        (endpoint, options)
    }

    /// Queues something of a storage server.
    #[must_use = "somebody should wait for the answer"]
    pub fn submit_object(&self, mut request: ObjectRequest, call: Call) -> Pending {
        if let ObjectRequest::Batch(batch) = &mut request {
            batch.settled = self.shared.lock().session.settled();
        }
        let expected = ExpectedObjects::of(&request);
        let body = encode(&Request::Object(request));
        let expected = Some(Answers::Objects(expected));
        self.submit_encoded(body, call, expected, Features::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_server_that_starts_anew_is_another_verifier_and_a_new_one_is_not() {
        let runs = Runs::default();
        let [one, two] = [1, 2].map(|byte| ServerId([byte; 16]));
        let [first, second] = [1, 2].map(|byte| WriteVerifier([byte; 16]));
        let begin = runs.note(one, first);
        assert_eq!(runs.note(two, first), begin);
        assert_eq!(runs.note(one, first), begin);
        let after = runs.note(two, second);
        assert_ne!(after, begin);
        assert_eq!(runs.note(one, first), after);
        // What comes late out of the run before is not taken for what was there then.
        let late = runs.note(two, first);
        assert!(late != after && late != begin && runs.together() == late);
    }

    #[test]
    fn what_was_done_in_a_run_that_is_over_is_not_current() {
        let runs = Runs::default();
        let [one, two] = [1, 2].map(|byte| ServerId([byte; 16]));
        let [first, second] = [1, 2].map(|byte| WriteVerifier([byte; 16]));
        // Servers that were not heard of before are heard of by that.
        let begin = runs.current(&[(one, first), (two, first)]);
        assert_eq!(begin, Some(runs.together()));
        let after = runs.note(two, second);
        assert_eq!(runs.current(&[(one, first), (two, first)]), None);
        assert_eq!(runs.together(), after, "to ask changes nothing");
        assert_eq!(runs.current(&[(one, first), (two, second)]), Some(after));
        assert_eq!(runs.current(&[]), Some(after));
        assert!(begin != Some(OVER) && after != OVER);
    }
}
