//! What every result says of itself, so that it can be told from others later.

use super::print::kernel;
use ::verify::results::{Kind, VERSION};
use serde_json::{Value, json};

/// The release that this is.
pub(super) const RELEASE: &str = env!("CARGO_PKG_VERSION");

/// Adds it to a result.
pub(super) fn add(result: &mut Value, kind: Kind) {
    let arguments = std::env::args_os().skip(1);
    let arguments: Vec<String> = arguments
        .map(|argument| argument.to_string_lossy().into_owned())
        .collect();
    let more = [
        ("kind", json!(kind.name())),
        ("version", json!(VERSION)),
        ("date", json!(now())),
        ("command", json!(command(&arguments))),
        ("release", json!(RELEASE)),
        ("kernel", json!(kernel())),
    ];
    for (key, value) in more {
        result[key] = value;
    }
}

/// Now, in UTC.
pub(super) fn now() -> String {
    let now = jiff::Timestamp::now();
    now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// A command with these arguments, as a shell takes it.
pub(super) fn command(arguments: &[String]) -> String {
    let words = arguments.iter().map(|word| quoted(word));
    let words: Vec<String> = ["azekura".to_owned()].into_iter().chain(words).collect();
    words.join(" ")
}

fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./,:=+%@".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_can_be_given_to_a_shell_again() {
        let words = ["verify", "crash", "--mount-options", "a b", "it's", ""];
        let shown = command(&words.map(str::to_owned));
        assert_eq!(
            shown,
            "azekura verify crash --mount-options 'a b' 'it'\\''s' ''"
        );
        let mut shell = std::process::Command::new("sh");
        let script = format!("azekura() {{ printf '<%s>' \"$@\"; }}; {shown}");
        let said = shell.arg("-c").arg(script).output().unwrap();
        let said = String::from_utf8(said.stdout).unwrap();
        assert_eq!(said, "<verify><crash><--mount-options><a b><it's><>");
    }

    #[test]
    fn a_result_says_what_it_is() {
        let mut result = json!({"seed": 7});
        add(&mut result, Kind::Speed);
        assert_eq!(
            (&result["kind"], &result["seed"]),
            (&json!("speed"), &json!(7))
        );
        assert_eq!(result["version"], json!(1));
        let date = result["date"].as_str().unwrap();
        assert!(date.parse::<jiff::Timestamp>().is_ok(), "{date}");
        assert!(result["kernel"].as_str().unwrap().starts_with("Linux "));
    }
}
