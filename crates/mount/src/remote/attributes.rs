//! Attributes, link targets, figures of the file system.

use super::convert::{attr, attr_valid};
use super::{Call, RemoteFs};
use crate::kernel::{SetAttr, StatFs, Statx};
use base::AttributeChange;
use client::volume::View;
use std::sync::Arc;
use std::time::Duration;

fn answer_attr(call: Call, view: &View) {
    call.answer.attr(&attr(&view.attributes), attr_valid(view));
}

fn answer_statx(call: Call, view: &View) {
    let statx = Statx {
        attr: attr(&view.attributes),
        btime: view.attributes.created,
        attributes: 0,
        attributes_mask: 0,
    };
    call.answer.statx(&statx, attr_valid(view));
}

impl RemoteFs {
    /// `through_open`: the kernel itself asks, for the size alone (to seek to the end, say).
    pub(super) fn get_attr(&self, call: Call, through_open: bool) {
        if through_open && let Some(view) = self.volume.attributes_cached(call.node) {
            return answer_attr(call, &view);
        }
        self.with_attributes(call, answer_attr);
    }

    pub(super) fn statx(&self, call: Call) {
        self.with_attributes(call, answer_statx);
    }

    fn with_attributes(&self, mut call: Call, answer: fn(Call, &View)) {
        if let Some(view) = self.volume.attributes_settled(call.node) {
            return answer(call, &view);
        }
        let who = call.who();
        call.answer.wait(None);
        let volume = Arc::clone(&self.volume);
        let question = volume.question(call.node);
        self.runtime.spawn(async move {
            match volume.attributes(&who, call.node).await {
                Ok(view) => answer(call, &view),
                Err(error) => call.answer.fail(error),
            }
            drop(question);
        });
    }

    pub(super) fn set_attr(&self, mut call: Call, set: SetAttr) {
        let change = AttributeChange {
            mode: set.mode,
            uid: set.uid,
            gid: set.gid,
            size: set.size,
            accessed: set.atime,
            modified: set.mtime,
        };
        let open = set
            .fh
            .and_then(|fh| self.handles.file(fh))
            .map(|file| file.open);
        let who = call.who();
        call.answer.wait(None);
        let volume = Arc::clone(&self.volume);
        self.runtime.spawn(async move {
            match volume.set_attributes(&who, call.node, change, open).await {
                // The kernel takes these over whatever it was told after them (Linux 6.18 compares
                // no versions here), so it must not keep them.
                Ok(view) => call.answer.attr(&attr(&view.attributes), Duration::ZERO),
                Err(error) => call.answer.fail(error),
            }
        });
    }

    pub(super) fn read_link(&self, mut call: Call) {
        let who = call.who();
        call.answer.wait(None);
        let volume = Arc::clone(&self.volume);
        self.runtime.spawn(async move {
            match volume.read_link(&who, call.node).await {
                Ok(target) => call.answer.target(&target),
                Err(error) => call.answer.fail(error),
            }
        });
    }

    pub(super) fn stat_fs(&self, mut call: Call) {
        let who = call.who();
        call.answer.wait(None);
        let volume = Arc::clone(&self.volume);
        self.runtime.spawn(async move {
            match volume.stat_file_system(&who, call.node).await {
                Ok(stat) => call.answer.statfs(&StatFs {
                    fragment_bytes: stat.block_size,
                    block_bytes: stat.block_size,
                    blocks: stat.blocks,
                    blocks_free: stat.blocks_free,
                    blocks_available: stat.blocks_available,
                    files: stat.files,
                    files_free: stat.files_free,
                    name_bytes_max: stat.name_max,
                }),
                Err(error) => call.answer.fail(error),
            }
        });
    }
}
