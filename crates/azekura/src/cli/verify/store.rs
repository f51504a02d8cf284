//! Stores as what a crash run uses: objects are files, a sync is a commit.
//!
//! Workloads run on a store as a server runs one, with its threads and its queue. After a crash it
//! is opened, every record is checked against every other, and every object is read.

use ::store::device::{DeviceOptions, FileDevice};
use ::store::{Core, Options, Store, Terms};
use ::verify::actor::{Device, MountAs, Tool, Underneath, output};
use ::verify::oracle::{Entry, EntryKind};
use ::verify::workload::{Step, content};
use base::limits::{VERIFY_FILE_BYTES_MAX, VERIFY_FOUND_MAX};
use base::{ObjectId, Time};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

/// See the module's head.
#[derive(Default)]
pub(super) struct Stores {
    /// What is recorded, and what crash states are put into.
    path: Option<PathBuf>,
    states: Option<PathBuf>,
    chosen: Device,
    /// While it is mounted.
    device: Option<Arc<FileDevice>>,
    /// There from the first step on; what is only looked at needs no threads.
    store: Option<Store>,
}

impl Stores {
    /// The file that is used now.
    fn file(&self) -> Result<&Path, String> {
        let file = match self.chosen {
            Device::Recorded => &self.path,
            Device::States => &self.states,
        };
        let file = file.as_deref();
        file.ok_or_else(|| "no device is attached".to_owned())
    }

    fn device(&self) -> Result<Arc<FileDevice>, String> {
        let device = self.device.clone();
        device.ok_or_else(|| "the store is not open".to_owned())
    }

    fn store(&mut self) -> Result<&Store, String> {
        let device = self.device()?;
        if self.store.is_none() {
            let clock = Arc::new(|| Time::from_secs(1));
            let store = Store::open(device, Options::default(), clock);
            self.store = Some(store.map_err(|error| error.to_string())?);
        }
        Ok(self.store.as_ref().expect("it was opened above"))
    }
}

/// The object that stands for a file: its name, with zeros behind.
fn object(path: &str) -> Result<ObjectId, String> {
    let mut id = [0; 16];
    let name = path.as_bytes();
    let room = id.get_mut(..name.len()).ok_or("the name is too long")?;
    room.copy_from_slice(name);
    Ok(ObjectId(id))
}

fn path(object: ObjectId) -> String {
    let end = object.0.iter().position(|byte| *byte == 0).unwrap_or(16);
    String::from_utf8_lossy(&object.0[..end]).into_owned()
}

impl Underneath for Stores {
    fn attach(&mut self, file: &Path, _: &Path) -> Result<(), String> {
        self.path = Some(file.to_owned());
        Ok(())
    }

    fn attach_states(&mut self, file: &Path) -> Result<(), String> {
        self.states = Some(file.to_owned());
        Ok(())
    }

    fn choose(&mut self, device: Device) {
        self.chosen = device;
    }

    /// The only tool of a store is this program.
    fn tool(&mut self, tool: &Tool) -> Result<(), String> {
        let path = self.file()?;
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        let mut command = Command::new(program);
        for argument in &tool.arguments {
            match argument.as_str() {
                "{}" => command.arg(path),
                argument => command.arg(argument),
            };
        }
        output(&mut command, tool.code_max).map(drop)
    }

    fn mount(&mut self, _: &MountAs) -> Result<(), String> {
        let path = self.file()?;
        let device = FileDevice::open(path, DeviceOptions::default());
        let device = device.map_err(|error| error.to_string())?;
        self.device = Some(Arc::new(device));
        Ok(())
    }

    fn unmount(&mut self) -> Result<(), String> {
        let stopped = self.store.take().map_or(Ok(()), Store::stop);
        self.device = None;
        stopped.map_err(|error| error.to_string())
    }

    fn run(&mut self, step: &Step) -> Result<(), String> {
        let store = self.store()?;
        let done = match step {
            Step::Create { path } => store.create(object(path)?, Terms::Default),
            Step::Write {
                path,
                offset,
                len,
                tag,
            } => store.write(object(path)?, *offset, &content(*tag, *len)),
            Step::Append { path, len, tag } => {
                let object = object(path)?;
                let end = store.info(object).map(|info| info.size_bytes);
                end.and_then(|end| store.write(object, end, &content(*tag, *len)))
            }
            Step::Truncate { path, len } => store.truncate(object(path)?, *len),
            Step::Unlink { path } => store.delete(object(path)?),
            Step::Sync => store.commit(),
            other => return Err(format!("a store cannot {other}")),
        };
        done.map_err(|error| format!("{step}: {error}"))
    }

    fn look(&mut self, _: &[String]) -> Result<Vec<Entry>, String> {
        let words = |error: ::store::StoreError| error.to_string();
        let core = Core::open(self.device()?, Options::default()).map_err(words)?;
        let report = core.check(true).map_err(words)?;
        if let Some(finding) = report.findings.first() {
            return Err(finding.to_string());
        }
        let first = ObjectId([0; 16]);
        let (objects, more) = core
            .list(Time::ZERO, first, VERIFY_FOUND_MAX)
            .map_err(words)?;
        if more.is_some() {
            return Err("there are more objects than were ever made".to_owned());
        }
        let mut found = Vec::new();
        for info in objects {
            let len = info.size_bytes.min(VERIFY_FILE_BYTES_MAX + 1);
            let mut bytes = vec![0; usize::try_from(len).expect("a megabyte fits")];
            let kind = match core.read(Time::ZERO, info.object, 0, &mut bytes) {
                Ok(read) => {
                    bytes.truncate(read);
                    EntryKind::File(bytes)
                }
                Err(error) => EntryKind::Unreadable(error.to_string()),
            };
            let path = path(info.object);
            found.push(Entry { path, kind });
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_have_the_names_of_their_files() {
        assert_eq!(path(object("o17").unwrap()), "o17");
        assert!(object("a name of seventeen").is_err());
    }

    #[test]
    fn nothing_is_done_without_a_device() {
        let mut stores = Stores::default();
        assert!(stores.run(&Step::Sync).is_err());
        assert!(stores.look(&[]).is_err());
        assert!(stores.unmount().is_ok());
    }
}
