//! What a connection for bulk data has of its own: requests beside the session's, about the
//! connection that carries them.

use super::warming::Warming;
use base::RequestId;
use base::limits::WARM_BYTES_MAX;
use bytes::Bytes;
use std::sync::Arc;
use wire::frame::{Class, Frame, FrameKind};
use wire::link::BulkSocket;
use wire::message::{Request, frame};

/// Of a warming round. None of the session's ids, as the next one.
pub(super) const WARMING_REQUEST: RequestId = RequestId(u64::MAX);
/// Of the word that the line has changed, whose answer nobody waits for.
const LINE_CHANGED_REQUEST: RequestId = RequestId(u64::MAX - 1);

/// One connection's own state; that of the main one does nothing.
#[derive(Default)]
pub(super) struct Bulk {
    warming: Warming,
    socket: Option<Arc<BulkSocket>>,
    /// The server's TCP is to be told; whether the line has become longer.
    line_changed: Option<bool>,
}

impl Bulk {
    pub(super) fn new(warming: Warming, socket: Option<Arc<BulkSocket>>) -> Self {
        Self {
            warming,
            socket,
            line_changed: None,
        }
    }

    /// What is to be said before anything of the session. `is_idle`: nothing real is on the
    /// connection.
    pub(super) fn next_frame(&mut self, is_idle: bool) -> Option<Frame> {
        static ZEROS: [u8; WARM_BYTES_MAX as usize] = [0; WARM_BYTES_MAX as usize];
        if let Some((bytes, upload_bytes)) = self.warming.next_round(is_idle) {
            let request = frame(
                FrameKind::Request,
                WARMING_REQUEST,
                &Request::Warm { bytes },
            );
            return Some(Frame {
                class: Class::Background,
                payload: Bytes::from_static(&ZEROS[..upload_bytes as usize]).into(),
                ..request
            });
        }
        let is_longer = self.line_changed.take()?;
        let request = Request::LineChanged { is_longer };
        Some(Frame {
            class: Class::Background,
            ..frame(FrameKind::Request, LINE_CHANGED_REQUEST, &request)
        })
    }

    /// A warming round was answered.
    pub(super) fn on_warmed(&mut self) {
        self.warming.on_answered();
    }

    /// The line towards the server has changed: our TCP is told.
    pub(super) fn on_upload_changed(&self, is_longer: bool) {
        if let Some(socket) = &self.socket {
            socket.restart(is_longer);
        }
    }

    /// The line from the server has changed: the server is asked to tell its TCP.
    pub(super) fn on_download_changed(&mut self, is_longer: bool) {
        self.line_changed = Some(is_longer);
    }
}
