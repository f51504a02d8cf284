//! What a check or a scrub has found, for people and for programs.

use super::shown;
use crate::errors::{Code, Failure, Result};
use crate::output;
use ::store::{Finding, Mend, Report};
use serde_json::{Value, json};
use std::path::Path;

/// What was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    /// Records, and nothing of the data.
    Records,
    /// Records and data.
    All,
    /// Whatever is in use is read; objects are not gone through.
    Scrub,
}

/// Prints a report; fails if something is wrong that was not put right.
pub(super) fn print(path: &Path, report: &Report, scope: Scope, json: bool) -> Result<()> {
    if json {
        output::json(&json!({
            "path": path.to_string_lossy(),
            "objects": report.objects,
            "verified_bytes": report.verified_bytes,
            "findings": report.findings.iter().map(to_json).collect::<Vec<_>>(),
        }))?;
    } else {
        output::write(&page(report, scope))?;
    }
    let is_left = |finding: &&Finding| finding.mend != Mend::Done;
    match report.findings.iter().filter(is_left).count() as u64 {
        0 => Ok(()),
        left => {
            let left = output::count(left, "finding");
            let message = format!("{}: {left}", shown(path));
            Err(Failure::new(Code::StoreFindings, message))
        }
    }
}

fn to_json(finding: &Finding) -> Value {
    json!({
        "code": finding.kind.code(),
        "repair": finding.mend.code(),
        "object": finding.object.map(|object| object.to_string()),
        "offset_bytes": finding.extent.map(|extent| extent.offset),
        "bytes": finding.extent.map(|extent| extent.len),
        "message": output::plain(&finding.to_string()),
    })
}

fn page(report: &Report, scope: Scope) -> String {
    let mut page = String::new();
    for finding in &report.findings {
        let state = match finding.mend {
            Mend::Possible => "can be repaired",
            Mend::Done => "repaired",
            Mend::Impossible => "cannot be repaired",
        };
        let text = output::plain(&finding.to_string());
        page += &format!("{}: {text} ({state})\n", finding.kind.code());
    }
    let count = |mend| report.findings.iter().filter(|f| f.mend == mend).count() as u64;
    let mut parts = Vec::new();
    if scope != Scope::Scrub {
        let objects = output::count(report.objects, "object");
        parts.push(format!("{objects} checked"));
    }
    parts.push(match scope {
        Scope::Records => "their data not read".to_owned(),
        Scope::All | Scope::Scrub => format!("{} read", output::size(report.verified_bytes)),
    });
    parts.push(output::count(report.findings.len() as u64, "finding"));
    for (mend, what) in [
        (Mend::Done, "repaired"),
        (Mend::Possible, "to be repaired"),
        (Mend::Impossible, "beyond repair"),
    ] {
        if count(mend) > 0 {
            parts.push(format!("{} {what}", count(mend)));
        }
    }
    page + &parts.join(", ") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::store::Kind;
    use base::{Extent, ObjectId};
    use expect_test::expect;

    #[test]
    fn a_finding_has_code_object_bytes_and_what_became_of_it() {
        let finding = |kind, mend, object, extent| Finding {
            kind,
            mend,
            object,
            extent,
            what: "why".to_owned(),
        };
        let (object, extent) = (ObjectId([0xAB; 16]), Extent::new(0, 9));
        let report = Report {
            objects: 2,
            verified_bytes: 1 << 20,
            findings: vec![
                finding(Kind::Superblock, Mend::Done, None, None),
                finding(Kind::Data, Mend::Impossible, Some(object), Some(extent)),
            ],
        };
        expect![[r#"
            superblock: why (repaired)
            data: object abababababababababababababababab, bytes 0 to 9: why (cannot be repaired)
            2 objects checked, 1.0 MiB read, 2 findings, 1 repaired, 1 beyond repair
        "#]]
        .assert_eq(&page(&report, Scope::All));
        let last = |scope| page(&report, scope).lines().last().unwrap().to_owned();
        let is = "2 findings, 1 repaired, 1 beyond repair";
        assert_eq!(last(Scope::Scrub), format!("1.0 MiB read, {is}"));
        let records = "2 objects checked, their data not read";
        assert_eq!(last(Scope::Records), format!("{records}, {is}"));
        let json = to_json(&report.findings[1]);
        assert_eq!(
            (&json["code"], &json["repair"]),
            (&json!("data"), &json!("impossible"))
        );
        assert_eq!(
            (&json["offset_bytes"], &json["bytes"]),
            (&json!(0), &json!(9))
        );
        assert_eq!(to_json(&report.findings[0])["object"], Value::Null);
    }
}
