//! Progress of long work: a bar with rate and time left, on a terminal only.

use base::Rate;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use std::fmt;
use std::time::Duration;

/// A bar on standard error; nothing at all if that is no terminal.
#[derive(Clone, Debug)]
pub(crate) struct Progress(ProgressBar);

const TEMPLATE: &str = "{msg} {wide_bar:.dim} {bytes}/{total_bytes}  {rate}  {eta} left";
const COUNT_TEMPLATE: &str = "{msg} {wide_bar:.dim} {pos}/{len}  {per_sec}  {eta} left";
const TIME_TEMPLATE: &str = "{msg} {wide_bar:.dim} {percent} %  {eta} left";

/// The rate in the units of the summaries that follow.
fn show_rate(state: &ProgressState, out: &mut dyn fmt::Write) {
    // A bar that cannot be drawn is no failure of the work.
    let _ = write!(out, "{}", Rate(state.per_sec() as u64));
}

impl Progress {
    /// For `total` bytes of work.
    pub(crate) fn bytes(what: &'static str, total: u64) -> Self {
        // Hidden by itself where standard error is no terminal.
        let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr());
        let style = ProgressStyle::with_template(TEMPLATE).expect("the template is well formed");
        bar.set_style(style.with_key("rate", show_rate).progress_chars("=> "));
        bar.set_message(what);
        Self(bar)
    }

    /// For `total` things.
    pub(crate) fn count(what: &'static str, total: u64) -> Self {
        let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr());
        let style = ProgressStyle::with_template(COUNT_TEMPLATE);
        let style = style.expect("the template is well formed");
        bar.set_style(style.progress_chars("=> "));
        bar.set_message(what);
        Self(bar)
    }

    /// For work that takes so many milliseconds.
    pub(crate) fn time(what: &'static str, total_millis: u64) -> Self {
        let bar = ProgressBar::with_draw_target(Some(total_millis), ProgressDrawTarget::stderr());
        let style = ProgressStyle::with_template(TIME_TEMPLATE);
        let style = style.expect("the template is well formed");
        bar.set_style(style.progress_chars("=> "));
        bar.set_message(what);
        Self(bar)
    }

    /// For work whose amount is not known yet: only that something happens.
    pub(crate) fn unknown(what: &'static str) -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        let style = ProgressStyle::with_template("{spinner} {msg} {pos}");
        bar.set_style(style.expect("the template is well formed"));
        bar.set_message(what);
        bar.enable_steady_tick(Duration::from_millis(200));
        Self(bar)
    }

    /// So much is done in all.
    pub(crate) fn set(&self, done: u64) {
        self.0.set_position(done);
    }

    /// There is so much in all, as it looks now.
    pub(crate) fn set_total(&self, total: u64) {
        self.0.set_length(total);
    }

    /// So much is done in all, and now it is this one's turn.
    pub(crate) fn set_of(&self, done: u64, what: &str) {
        self.0.set_position(done);
        if self.0.message() != what {
            self.0.set_message(what.to_owned());
        }
    }

    /// So much more is done.
    pub(crate) fn add(&self, more: u64) {
        self.0.inc(more);
    }

    /// Says something above the bar.
    pub(crate) fn note(&self, text: &str) {
        self.0.suspend(|| crate::output::note(text));
    }

    /// Takes the bar away.
    pub(crate) fn finish(&self) {
        self.0.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_styles_are_well_formed() {
        Progress::bytes("copying", 1).finish();
        Progress::count("trying", 1).finish();
        Progress::time("measuring", 1).finish();
        let unknown = Progress::unknown("listing");
        unknown.add(1);
        unknown.finish();
    }
}
