//! From a document to a shell script whose line numbers are the document's own: whatever bash says
//! about a line is about that line of the document.

/// Sourced by bash before the script. Output goes to one log; the mark is the log's length before
/// the latest command, so that an expectation sees that command's output and nothing older. It
/// waits a little, because a server in the background may speak late.
pub(crate) const PRELUDE: &str = r#"
unset BASH_ENV
set -Eeuo pipefail
exec >>"$EXAMPLE_LOG" 2>&1
mark=0
expect() {
    local deadline=$((SECONDS + 10))
    until grep -qF -- "$1" <(tail -c "+$((mark + 1))" "$EXAMPLE_LOG"); do
        if ((SECONDS >= deadline)); then
            echo "example: ${BASH_LINENO[0]}: expected: $1"
            exit 1
        fi
        sleep 0.1
    done
}
trap 'status=$?; echo "example: $LINENO: exit status $status: $BASH_COMMAND"; exit $status' ERR
trap '[[ $BASH_COMMAND == expect\ * ]] || mark=$(stat -c %s "$EXAMPLE_LOG")' DEBUG
"#;

const FENCE: &str = "```sh azekura";
const EXPECTATION: &str = "#=>";
/// Lines of output shown with a failure.
const REPORT_LINES_MAX: usize = 40;

/// The document's examples as a script, or `None` if it has none.
pub(crate) fn extract(document: &str) -> Option<String> {
    let mut script = String::new();
    let mut inside = false;
    let mut found = false;
    for line in document.lines() {
        if !inside && line.trim_end() == FENCE {
            inside = true;
            found = true;
        } else if inside && line.trim_end() == "```" {
            inside = false;
        } else if inside {
            script += &command(line);
        }
        script.push('\n');
    }
    found.then_some(script)
}

fn command(line: &str) -> String {
    match line.trim_start().strip_prefix(EXPECTATION) {
        Some(text) => format!("expect '{}'", text.trim().replace('\'', r"'\''")),
        None => line.to_owned(),
    }
}

/// What went wrong where, with the end of the output.
pub(crate) fn report(path: &str, output: &str, end: &str) -> String {
    let place = output.lines().rev().find_map(|line| {
        let (number, message) = line.strip_prefix("example: ")?.split_once(": ")?;
        Some(format!("{path}:{number}: {message}"))
    });
    let headline = place.unwrap_or_else(|| format!("{path}: {end}"));
    let lines: Vec<_> = output
        .lines()
        .filter(|line| !line.starts_with("example: "))
        .collect();
    let tail = &lines[lines.len().saturating_sub(REPORT_LINES_MAX)..];
    let indented = tail.iter().map(|line| format!("\n    {line}"));
    headline + &indented.collect::<String>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_keep_their_numbers() {
        let text = "# T\n```sh azekura\nls 'a'\n  #=> it's\n```\n```sh\nrm -r /\n```\n";
        let script = extract(text).unwrap();
        assert_eq!(script, "\n\nls 'a'\nexpect 'it'\\''s'\n\n\n\n\n");
        assert_eq!(extract("```sh\nls\n```\n"), None);
    }

    #[test]
    fn a_report_points_at_the_document() {
        let report = report(
            "README.md",
            "hello\nexample: 7: exit status 2: ls x\n",
            "exit 2",
        );
        assert_eq!(report, "README.md:7: exit status 2: ls x\n    hello");
        assert_eq!(
            super::report("a.md", "", "killed after 3 s"),
            "a.md: killed after 3 s"
        );
    }
}
