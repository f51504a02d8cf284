//! Notes what is done to a device.
//!
//! Every write, range of zeros and flush is noted in the order in which the device did it, together
//! with the marks that a workload sets: one log says what had been promised before which write. A
//! write is noted when it is done and before it is answered, a flush when it is answered, so
//! whatever stands before a flush in the log was told to be done before the flush was.

use crate::log::{Entry, Mark};
use base::limits::{VERIFY_LOG_BYTES_MAX, VERIFY_LOG_ENTRIES_MAX};
use base::{BlockDevice, DeviceAction, DeviceError, Extent};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A device as another one, with a log.
pub struct Recorder {
    device: Arc<dyn BlockDevice>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    is_recording: bool,
    entries: Vec<Entry>,
    bytes: u64,
}

impl Recorder {
    /// Passes everything on to `device`, and notes nothing yet.
    #[must_use]
    pub fn new(device: Arc<dyn BlockDevice>) -> Self {
        let state = Mutex::default();
        Self { device, state }
    }

    /// Begins a log; what was noted before is forgotten.
    pub fn start(&self) {
        *self.state() = State {
            is_recording: true,
            ..State::default()
        };
    }

    /// Notes a mark.
    ///
    /// # Errors
    /// [`DeviceError::Failed`] if the log is full.
    pub fn mark(&self, mark: Mark) -> Result<(), DeviceError> {
        self.state().note(DeviceAction::Write, Entry::Mark(mark))
    }

    /// Ends the log and hands it over.
    #[must_use]
    pub fn take(&self) -> Vec<Entry> {
        std::mem::take(&mut *self.state()).entries
    }

    /// Only memory is changed under the lock, and by the device what it takes.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Whether there is room for an entry of this many bytes.
    fn check_room(&self, action: DeviceAction, bytes: u64) -> Result<(), DeviceError> {
        let is_full = self.entries.len() >= VERIFY_LOG_ENTRIES_MAX
            || self.bytes.saturating_add(bytes) > VERIFY_LOG_BYTES_MAX;
        if self.is_recording && is_full {
            let source = io::Error::new(io::ErrorKind::StorageFull, "the crash log is full");
            return Err(DeviceError::Failed {
                action,
                extent: Extent::default(),
                source,
            });
        }
        Ok(())
    }

    fn note(&mut self, action: DeviceAction, entry: Entry) -> Result<(), DeviceError> {
        if !self.is_recording {
            return Ok(());
        }
        let bytes = entry.memory_bytes();
        self.check_room(action, bytes)?;
        self.bytes += bytes;
        self.entries.push(entry);
        Ok(())
    }
}

impl BlockDevice for Recorder {
    fn len_bytes(&self) -> u64 {
        self.device.len_bytes()
    }

    fn block_bytes(&self) -> u32 {
        self.device.block_bytes()
    }

    fn sector_bytes(&self) -> u32 {
        self.device.sector_bytes()
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        self.device.read_at(offset, into)
    }

    fn write_at(&self, offset: u64, from: &[u8]) -> Result<(), DeviceError> {
        self.extent_at(offset, from.len())?;
        let mut state = self.state();
        state.check_room(DeviceAction::Write, from.len() as u64)?;
        self.device.write_at(offset, from)?;
        if !state.is_recording || from.is_empty() {
            return Ok(());
        }
        let data = from.into();
        state.note(DeviceAction::Write, Entry::Write { offset, data })
    }

    fn flush(&self) -> Result<(), DeviceError> {
        let mut state = self.state();
        self.device.flush()?;
        state.note(DeviceAction::Flush, Entry::Flush)
    }

    /// What is trimmed may be anything; here it becomes zeros, so that it is one thing.
    fn trim(&self, extent: Extent) -> Result<(), DeviceError> {
        self.write_zeros(extent)
    }

    fn write_zeros(&self, extent: Extent) -> Result<(), DeviceError> {
        let mut state = self.state();
        state.check_room(DeviceAction::Trim, 0)?;
        self.device.write_zeros(extent)?;
        if extent.is_empty() {
            return Ok(());
        }
        state.note(DeviceAction::Trim, Entry::Zeros(extent))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Medium;

    fn recorder() -> Recorder {
        Recorder::new(Arc::new(Medium::new(1 << 20)))
    }

    fn use_it(recorder: &Recorder) {
        recorder.mark(Mark::Begun(1)).unwrap();
        recorder.write_at(0, &[1; 512]).unwrap();
        recorder.flush().unwrap();
        recorder.write_zeros(Extent::new(512, 512)).unwrap();
        recorder.flush().unwrap();
        recorder.mark(Mark::Done(1)).unwrap();
    }

    fn kinds(log: &[Entry]) -> String {
        let kind = |entry: &Entry| match entry {
            Entry::Write { .. } => 'w',
            Entry::Zeros(_) => 'z',
            Entry::Flush => 'f',
            Entry::Mark(Mark::Begun(_)) => '(',
            Entry::Mark(Mark::Done(_)) => ')',
        };
        log.iter().map(kind).collect()
    }

    #[test]
    fn everything_is_noted_in_its_order_and_only_while_it_is_to_be() {
        let recorder = recorder();
        use_it(&recorder);
        recorder.start();
        use_it(&recorder);
        assert_eq!(kinds(&recorder.take()), "(wfzf)");
        use_it(&recorder);
        assert!(recorder.take().is_empty());
    }

    #[test]
    fn a_log_that_is_full_refuses_writes() {
        let recorder = recorder();
        recorder.start();
        recorder.state().bytes = VERIFY_LOG_BYTES_MAX - 10;
        assert!(recorder.write_at(0, &[1; 512]).is_err());
        recorder.state().bytes = 0;
        recorder.write_at(0, &[1; 512]).unwrap();
        assert_eq!(kinds(&recorder.take()), "w");
    }
}
