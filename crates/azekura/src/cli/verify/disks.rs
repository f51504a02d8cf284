//! Disks that machines of a run see over NBD: requests come to this process, which decides what is
//! lost of them.

use crate::connect::runtime;
use crate::errors::Result;
use ::verify::powercut::DiskServer;
use base::BlockDevice;
use rustix::fs::{Mode, OFlags, open};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use tokio::runtime::{Handle, Runtime};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use wire::nbd::{Export, Listener, Server};

/// Serves the disks of a run.
pub(super) struct NbdDisks(Runtime);

impl NbdDisks {
    pub(super) fn new() -> Result<Self> {
        Ok(Self(runtime()?))
    }
}

/// A disk that is served. Dropping it ends that.
struct Served {
    handle: Handle,
    stop: Option<oneshot::Sender<()>>,
    task: Option<JoinHandle<()>>,
    /// In which the socket is.
    _directory: OwnedFd,
}

impl DiskServer for NbdDisks {
    fn serve(
        &self,
        device: Arc<dyn BlockDevice>,
        directory: &Path,
        name: &str,
    ) -> io::Result<Box<dyn Send>> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = open(directory, flags, Mode::empty())?;
        // Names of sockets may have 107 bytes, those of directories more.
        let path = format!("/proc/self/fd/{}/{name}", directory.as_raw_fd());
        let listener = {
            let _within = self.0.enter();
            Listener::unix(Path::new(&path))?
        };
        let server = Server::new(Export {
            name: name.to_owned(),
            description: "a disk with a cache".to_owned(),
            device,
            is_read_only: false,
        });
        let (stop, stopped) = oneshot::channel();
        let task = self.0.spawn(async move {
            // Whether it is sent or dropped.
            let over = async {
                let _ = stopped.await;
            };
            server.run(listener, over).await;
        });
        Ok(Box::new(Served {
            handle: self.0.handle().clone(),
            stop: Some(stop),
            task: Some(task),
            _directory: directory,
        }))
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(task) = self.task.take() {
            // A panic of the server is told by itself.
            let _ = self.handle.block_on(task);
        }
    }
}
