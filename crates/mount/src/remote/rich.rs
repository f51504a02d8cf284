//! Volumes with rich ACLs: no answer before the server's verdict.
//!
//! The kernel judges nothing here. What could be answered from caches, or would be served from the
//! kernel's own afterwards, is judged first: look-ups (may the directory be searched), opens for
//! reading and of directories (may they be read), running a program, access(2). All else is done at
//! the server, which judges it there.
//!
//! Pipes, sockets and devices are opened by the kernel without a word, and by whoever has found
//! their name. So a look-up finds one only for those who may do with it whatever can be done. That
//! is less than some should have: who may only read a pipe does not see it.
//!
//! A verdict that is known under a lease costs nothing; any other a round trip, and it is the same
//! decision that the server takes for every other client ([`client::volume`]).

use super::names::Part;
use super::{Call, RemoteFs};
use crate::kernel::Operation;
use base::{FileKind, FsError, Principal};
use client::volume::View;
use rustix::fs::{Access, OFlags};
use std::sync::Arc;

const READS: u8 = 4;
const WRITES: u8 = 2;
const EXECUTES: u8 = 1;
/// The kernel opens a program in order to run it (`FMODE_EXEC` of its `fs.h`).
const TO_RUN: u32 = 0x20;

/// What an operation takes of its inode before it may be answered from here.
fn rights_for(operation: &Operation) -> Option<u8> {
    match operation {
        Operation::Lookup { .. } => Some(EXECUTES),
        Operation::OpenDir { .. } => Some(READS),
        Operation::Open { flags, .. } if flags.bits() & TO_RUN != 0 => Some(EXECUTES),
        Operation::Open { flags, .. } if !flags.intersects(OFlags::WRONLY | OFlags::RDWR) => {
            Some(READS)
        }
        Operation::Access { mask } => {
            let right = |bit, right| if mask.contains(bit) { right } else { 0 };
            Some(
                right(Access::READ_OK, READS)
                    | right(Access::WRITE_OK, WRITES)
                    | right(Access::EXEC_OK, EXECUTES),
            )
        }
        _ => None,
    }
}

impl RemoteFs {
    /// As [`Self::dispatch`], after the server's verdict where one is needed.
    pub(super) fn dispatch_judged(&self, mut call: Call, operation: Operation) {
        let Some(rights) = rights_for(&operation) else {
            return self.dispatch(call, operation);
        };
        let who = call.who();
        call.who = Some(who.clone());
        match self.volume.verdict(&who, call.node, rights) {
            Some(true) => return self.go_on(call, operation),
            Some(false) => return call.answer.fail(FsError::AccessDenied),
            None => {}
        }
        let Some(this) = self.this.upgrade() else {
            return call.answer.fail(FsError::Io);
        };
        call.answer.wait(None);
        let volume = Arc::clone(&self.volume);
        self.runtime.spawn(async move {
            match volume.judge(&who, call.node, rights).await {
                Ok(()) => this.go_on(call, operation),
                Err(error) => call.answer.fail(error),
            }
        });
    }

    /// Answers a look-up whose answer is known here.
    pub(super) fn answer_found(&self, mut call: Call, view: View) {
        let part = self.part();
        let Some(rights) = part.rights_to_find(&view) else {
            return part.answer_entry(call, &view);
        };
        let who = call.who();
        match self.volume.verdict(&who, view.node, rights) {
            Some(true) => part.answer_entry(call, &view),
            Some(false) => call.answer.fail(FsError::AccessDenied),
            None => {
                call.answer.wait(None);
                self.runtime
                    .spawn(async move { part.answer_judged(call, &who, &view).await });
            }
        }
    }

    fn go_on(&self, call: Call, operation: Operation) {
        match operation {
            Operation::Access { .. } => call.answer.done(),
            operation => self.dispatch(call, operation),
        }
    }
}

impl Part {
    /// What a caller must be able to do with what a look-up has found, because nobody asks when he
    /// does it.
    fn rights_to_find(&self, view: &View) -> Option<u8> {
        let rights = match view.attributes.kind {
            FileKind::Fifo => READS | WRITES,
            FileKind::Socket => WRITES,
            FileKind::BlockDevice | FileKind::CharDevice if self.has_devices => READS | WRITES,
            _ => return None,
        };
        self.volume.is_rich().then_some(rights)
    }

    /// Answers a look-up, after the server's verdict where one is needed.
    pub(super) async fn answer_judged(&self, call: Call, who: &Principal, view: &View) {
        let Some(rights) = self.rights_to_find(view) else {
            return self.answer_entry(call, view);
        };
        // It stays known while it is asked about.
        self.volume.reference(view.node);
        match self.volume.judge(who, view.node, rights).await {
            Ok(()) => self.answer_entry(call, view),
            Err(error) => call.answer.fail(error),
        }
        self.volume.forget(&[(view.node, 1)]);
    }
}
