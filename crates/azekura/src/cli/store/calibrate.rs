//! `azekura store calibrate`.

use super::describe::Description;
use super::measure::measure;
use super::{Interrupt, OnePath, on, shown};
use crate::config::Span;
use crate::errors::{Code, Failure, Result};
use crate::output;
use ::store::Core;
use base::Extent;

/// Least free space that is worth measuring: a few requests of each size.
const REGION_BYTES_MIN: u64 = 16 << 20;

/// Measure again what the device of a store can do
///
/// Measures in the longest run of the store's free space, so nothing that it has is touched, and
/// replaces what is known of the device's rates. The allocation unit stays what it is. Nobody can
/// use the store meanwhile.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  azekura store calibrate ./disk0
  azekura store calibrate /dev/sdb --dry-run")]
pub(in crate::cli) struct Calibrate {
    #[command(flatten)]
    path: OnePath,
    /// Time for measuring, up to 60s; with less of it, rates are less certain
    #[arg(long, value_name = "TIME")]
    calibration_time: Option<Span>,
    /// Only say which part of the device would be measured
    #[arg(long)]
    dry_run: bool,
    /// Print the store as JSON
    #[arg(long)]
    json: bool,
}

impl Calibrate {
    pub(super) fn run(self) -> Result<()> {
        let path = &self.path.path;
        let interrupt = Interrupt::watch()?;
        let (device, core) = super::open(&self.path, self.dry_run)?;
        let region = self.region(&core)?;
        drop(core);
        if self.dry_run {
            return self.tell(region);
        }
        let time = self.calibration_time;
        let capability =
            measure(path, &device, region, time, &interrupt).map_err(|failure| match interrupt
                .is_wanted()
            {
                true => failure.hint("what was known of the device's rates stays"),
                false => failure,
            })?;
        let written = Core::open(device.clone(), self.path.options())
            .and_then(|mut core| core.set_capability(capability.encode()).map(|()| core));
        let core = written.map_err(|error| on(path, error.into()))?;
        Description::of(&device, &core)?.print(self.json)
    }

    /// Free space that can be written.
    fn region(&self, core: &Core) -> Result<Extent> {
        let region = core.free_run();
        if region.len < REGION_BYTES_MIN {
            let (largest, least) = (output::size(region.len), output::size(REGION_BYTES_MIN));
            let path = shown(&self.path.path);
            let message = format!("{path}: {largest} are free side by side, {least} are needed");
            let hint = "delete objects, or grow the store, and repeat";
            return Err(Failure::new(Code::NoSpace, message).hint(hint));
        }
        Ok(region)
    }

    fn tell(&self, region: Extent) -> Result<()> {
        if self.json {
            return output::json(&serde_json::json!({
                "path": self.path.path.to_string_lossy(),
                "region_offset_bytes": region.offset, "region_bytes": region.len,
            }));
        }
        output::line(format_args!(
            "{}: {} of free space from byte {} on would be measured",
            shown(&self.path.path),
            output::size(region.len),
            region.offset,
        ))
    }
}
