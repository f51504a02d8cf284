//! Files that are made if they are not there, and cut to nothing if they are.
//!
//! Of a parallel volume, the stores must be ready to cut a file before the namespace does, and
//! which file has a name may change until then: the namespace cuts none but the one that was found.

use super::{Execution, Place};
use crate::tree::File;
use base::{FileKind, FsError, Name, Node};
use export::{Create, Worker};

/// How often a name may lead to another file than it did just before.
const CUT_TRIES: usize = 8;

impl Execution {
    pub(super) fn create_now(
        &mut self,
        worker: &Worker,
        parent: &Place,
        name: &Name,
        how: &Create,
        opens: bool,
    ) -> Result<(Node, Option<File>, bool), FsError> {
        if opens {
            return self.open_now(worker, parent, name, how);
        }
        let tree = &parent.volume.tree;
        let kind = FileKind::File;
        let (mode, umask) = (how.mode, how.umask);
        match tree.make_node(self.by(worker), &parent.inner, name, (kind, mode, umask, 0)) {
            Ok(node) => Ok((node, None, true)),
            Err(FsError::Exists) if !how.exclusive => Ok((
                tree.lookup(self.by(worker), &parent.inner, name)?,
                None,
                false,
            )),
            Err(error) => Err(error),
        }
    }

    fn open_now(
        &mut self,
        worker: &Worker,
        parent: &Place,
        name: &Name,
        how: &Create,
    ) -> Result<(Node, Option<File>, bool), FsError> {
        let tree = &parent.volume.tree;
        let may_cut = how.open.truncate && tree.parallel().is_some();
        let cuts = self.cuts.len();
        for _ in 0..CUT_TRIES {
            let there = may_cut.then(|| self.peek(worker, parent, name)).flatten();
            if let Some(there) = &there {
                self.may_cut(&self.place_of(parent, there))?;
            }
            let there = there.as_ref().map(|node| &node.handle);
            match tree.create(self.by(worker), &parent.inner, name, how, there) {
                // Nothing is changed: another file has the name meanwhile.
                Err(FsError::WouldBlock) if may_cut => self.cuts.truncate(cuts),
                made => {
                    let made = made?;
                    return Ok((made.node, Some(made.file), made.created));
                }
            }
        }
        Err(FsError::WouldBlock)
    }
}
