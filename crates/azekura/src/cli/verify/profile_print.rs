//! What a run of a profile has done, for people and for programs.

use super::head;
use super::profile::{State, Told};
use crate::output;
use ::verify::profile::{Absent, Part, Profile};
use serde_json::{Value, json};
use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

impl State {
    /// As in JSON.
    const fn name(self) -> &'static str {
        match self {
            Self::Kept => "kept",
            Self::Done => "done",
            Self::Early => "early",
            Self::Partly => "partly",
            Self::Failed => "failed",
            Self::LeftOut => "left_out",
            Self::Absent => "absent",
        }
    }

    /// For people.
    const fn words(self) -> &'static str {
        match self {
            Self::Kept => "was there",
            Self::Early => "ended early",
            Self::LeftOut => "left out",
            Self::Absent => "not here",
            other => other.name(),
        }
    }
}

/// What a run has done.
pub(super) struct Facts<'a> {
    pub(super) profile: Profile,
    pub(super) told: &'a [Told],
    /// The report, if there is one.
    pub(super) page: Option<&'a Path>,
    pub(super) time: Duration,
    pub(super) was_interrupted: bool,
}

impl Facts<'_> {
    pub(super) fn text(&self) -> String {
        let row = |one: &Told| {
            let hint = match one.said.hint.as_str() {
                "" => String::new(),
                hint if one.file.is_none() => format!(" ({hint})"),
                _ => String::new(),
            };
            let time = match one.time.is_zero() {
                true => String::new(),
                false => output::span(one.time),
            };
            [
                one.name.clone(),
                one.state.words().to_owned(),
                time,
                format!("{}{hint}", one.words),
            ]
        };
        let rows: Vec<[String; 4]> = self.told.iter().map(row).collect();
        let mut text = output::table(["PART", "STATE", "TIME", ""], &rows);
        let time = output::span(self.time);
        let _ = match self.page {
            Some(page) => {
                let page = output::plain(&page.display().to_string());
                writeln!(text, "{page}: the report, after {time}")
            }
            None => writeln!(text, "no part has a result, after {time}"),
        };
        text
    }

    pub(super) fn json(&self) -> Value {
        let one = |told: &Told| {
            json!({
                "part": told.name,
                "state": told.state.name(),
                "words": told.words,
                "hint": told.said.hint,
                "code": told.said.code,
                "seconds": told.time.as_secs_f64(),
                "file": told.file,
                "command": told.command,
                "is_loss": told.is_loss,
            })
        };
        json!({
            "profile": self.profile.name(),
            "parts": self.told.iter().map(one).collect::<Vec<_>>(),
            "report": self.page,
            "seconds": self.time.as_secs_f64(),
            "interrupted": self.was_interrupted,
        })
    }
}

/// What would be done of each part, and what there is already.
pub(super) fn plan_text(planned: &[(&Part, Option<State>)], absent: &[Absent]) -> String {
    let mut rows: Vec<[String; 3]> = planned
        .iter()
        .map(|(part, found)| {
            let state = match found {
                Some(State::Partly) => "was there in part",
                Some(found) => found.words(),
                None => "",
            };
            [
                part.name.clone(),
                state.to_owned(),
                head::command(&part.arguments),
            ]
        })
        .collect();
    rows.extend(absent.iter().map(|one| {
        [
            one.name.clone(),
            State::Absent.words().to_owned(),
            one.why.clone(),
        ]
    }));
    output::table(["PART", "STATE", "COMMAND"], &rows)
}

pub(super) fn plan_json(planned: &[(&Part, Option<State>)], absent: &[Absent]) -> Value {
    let part = |(part, found): &(&Part, Option<State>)| {
        json!({
            "part": part.name,
            "command": head::command(&part.arguments),
            "state": found.map_or("planned", State::name),
        })
    };
    let mut parts: Vec<Value> = planned.iter().map(part).collect();
    parts.extend(absent.iter().map(|one| {
        let state = State::Absent.name();
        json!({"part": one.name, "words": one.why, "state": state})
    }));
    json!({"dry_run": true, "parts": parts})
}
