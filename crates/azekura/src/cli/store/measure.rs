//! Measuring a device, or a part of it.

use super::{Interrupt, on};
use crate::config::Span;
use crate::errors::{Context, Failure, Result};
use crate::output;
use crate::progress::Progress;
use ::store::device::{
    CalibrateError, Calibration, Capability, FileDevice, InOrder, Queue, Ring, calibrate,
};
use base::Extent;
use base::limits::{CALIBRATION_TIME_MAX, DEVICE_IN_FLIGHT_BYTES_MAX};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Measures what the device does in `region`, whose bytes are lost.
pub(super) fn measure(
    path: &Path,
    device: &Arc<FileDevice>,
    region: Extent,
    time: Option<Span>,
    interrupt: &Interrupt,
) -> Result<Capability> {
    let queue: Box<dyn Queue> = match Ring::new(device.clone(), DEVICE_IN_FLIGHT_BYTES_MAX) {
        Ok(ring) => Box::new(ring),
        Err(error) => {
            tracing::debug!(%error, "no io_uring: one request after the other");
            Box::new(InOrder::new(device.clone()).context("no thread for the device")?)
        }
    };
    let mut calibration = Calibration::new(region);
    if let Some(Span(time)) = time {
        if time > CALIBRATION_TIME_MAX {
            output::note(format_args!(
                "--calibration-time {}: measuring takes {} at most, and that is what it takes now",
                output::span(time),
                output::span(CALIBRATION_TIME_MAX),
            ));
        }
        shorten(&mut calibration, time);
    }
    let millis = calibration.time_max.as_millis() as u64;
    let bar = Progress::time("measuring", millis);
    interrupt
        .with_bar(&bar, |progress| calibrate(&*queue, &calibration, progress))
        .map_err(|error| match error {
            CalibrateError::Cancelled => Failure::interrupted("interrupted"),
            other => on(path, other.into()),
        })
}

/// Less time in all is less time for each sample.
fn shorten(calibration: &mut Calibration, time: Duration) {
    let time = time.min(CALIBRATION_TIME_MAX);
    let share = time.as_secs_f64() / CALIBRATION_TIME_MAX.as_secs_f64();
    calibration.time_max = time;
    calibration.sample_time = calibration
        .sample_time
        .mul_f64(share)
        .max(Duration::from_millis(1));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn less_time_in_all_is_less_time_for_each_sample() {
        let mut calibration = Calibration::new(Extent::new(0, 1));
        shorten(&mut calibration, Duration::from_secs(3600));
        assert_eq!(calibration, Calibration::new(Extent::new(0, 1)));
        shorten(&mut calibration, Duration::from_secs(6));
        assert_eq!(calibration.sample_time, Duration::from_millis(6));
        shorten(&mut calibration, Duration::from_millis(1));
        assert_eq!(calibration.sample_time, Duration::from_millis(1));
    }
}
