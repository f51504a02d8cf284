//! Requests to a storage server.

use super::state::Answers;
use super::{Call, Pending, Transport};
use wire::message::{ExpectedObjects, ObjectRequest, Request, encode};

impl Transport {
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
