//! Requests to a storage server, and sessions whose contents lie in stores.

use super::state::Answers;
use super::{Call, Pending, Shared, Transport};
use base::WriteVerifier;
use std::sync::atomic::Ordering;
use wire::message::{ExpectedObjects, ObjectRequest, Request, Welcome, encode};

impl Shared {
    /// Whether what was written before is still there, where this session's contents lie.
    pub(super) fn verifier(&self, welcome: &Welcome) -> WriteVerifier {
        match self.writes_objects.load(Ordering::Acquire) {
            true => welcome.store_verifier,
            false => welcome.write_verifier,
        }
    }
}

impl Transport {
    /// What is written goes to objects: their verifier says from now on what may be lost.
    pub(crate) fn write_objects(&self) {
        self.shared.writes_objects.store(true, Ordering::Release);
    }

    /// Queues something of a storage server.
    #[must_use = "somebody should wait for the answer"]
    pub fn submit_object(&self, mut request: ObjectRequest, call: Call) -> Pending {
        if let ObjectRequest::Batch(batch) = &mut request {
            batch.settled = self.shared.lock().session.settled();
        }
        let expected = ExpectedObjects::of(&request);
        let body = encode(&Request::Object(request));
        self.submit_encoded(body, call, Some(Answers::Objects(expected)))
    }
}
