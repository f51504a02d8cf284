//! Where settings, credentials and state lie: the only place that reads the environment and the
//! configuration file.
//!
//! ```text
//! configuration  $AZEKURA_CONFIG_DIR, else $XDG_CONFIG_HOME/azekura, else ~/.config/azekura
//!   config.toml                      settings; a flag on the command line goes before them
//!   clusters/HOST_PORT/credential.pem  how to prove oneself to that server (0700, 0600)
//!   disk.key                         what signs published images (0600)
//!   known_disks                      whose signatures are believed, by repository
//! state          $AZEKURA_CONFIG_DIR/state, else $XDG_STATE_HOME/azekura, else
//! ~/.local/state/azekura
//!   lines/HOST_PORT.json             the line to that server as the last mount measured it
//!   mount-PATH.log                   what a mount in the background has to say
//!   disks/                           disks that are in use, their logs, and what was written
//! cache          $AZEKURA_CONFIG_DIR/cache, else $XDG_CACHE_HOME/azekura, else ~/.cache/azekura
//!   chunks/                          chunks of images
//! ```
//! One variable, `AZEKURA_CONFIG_DIR`, so moves everything: a test or a demonstration sees nothing
//! of the user's own. The home directory comes from `HOME` or, as under an init system, from the
//! user database.

use crate::address::Address;
use crate::errors::{Code, Context, Failure, Result};
use readahead::LineMemory;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::io::{self, Read};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use wire::identity::{Credential, IdentityError};

/// Longest configuration or state file that is read: a person writes less, and what is longer was
/// not written for us.
const FILE_BYTES_MAX: u64 = 256 << 10;
/// Where credentials lie, below the configuration.
const CLUSTERS: &str = "clusters";
/// Most servers that a hint names.
const SERVERS_NAMED_MAX: usize = 5;
/// Format of a remembered line.
const LINE_FORMAT: u32 = 1;

/// The two directories and the settings.
#[derive(Debug)]
pub(crate) struct Config {
    directory: PathBuf,
    state: PathBuf,
    cache: PathBuf,
    file: ConfigFile,
}

/// `config.toml`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ConfigFile {
    #[serde(default, deserialize_with = "duration_text")]
    timeout: Option<Duration>,
    #[serde(default)]
    servers: BTreeMap<String, ServerSettings>,
}

/// `[servers."HOST:PORT"]`.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ServerSettings {
    #[serde(default, deserialize_with = "duration_text")]
    timeout: Option<Duration>,
    #[serde(default)]
    plain: bool,
}

/// A line between two mounts.
#[derive(Serialize, Deserialize)]
struct LineFile {
    format: u32,
    download: Option<LineMemory>,
    upload: Option<LineMemory>,
    /// What the session received that measured it. Earlier releases did not note it.
    #[serde(default)]
    received_bytes: u64,
}

/// A time span as people write it: `30s`, `10m`, `1h 30m`, `7d`, `2w`. A day is 24 hours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span(pub(crate) Duration);

impl std::str::FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{text:?} is not a time span; write it like 30s, 10m, 1h 30m or 7d (units: ms, s, \
                 m, h, d for days, w for weeks)"
            )
        };
        let span = match text.parse::<jiff::SignedDuration>() {
            Ok(span) => span,
            // Days and weeks; months and years are of no fixed length, and refused.
            Err(_) => text
                .parse::<jiff::Span>()
                .and_then(|span| span.to_duration(jiff::SpanRelativeTo::days_are_24_hours()))
                .map_err(|_| wrong())?,
        };
        let span = Duration::try_from(span).map_err(|_| wrong())?;
        if span.is_zero() {
            return Err("the time span must be longer than nothing".to_owned());
        }
        Ok(Self(span))
    }
}

fn duration_text<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Duration>, D::Error> {
    let text = String::deserialize(deserializer)?;
    let span: Span = text.parse().map_err(serde::de::Error::custom)?;
    Ok(Some(span.0))
}

impl Config {
    /// Finds the directories and reads the settings.
    ///
    /// # Errors
    /// [`Code::Config`] for a file that is there and cannot be read.
    pub(crate) fn load() -> Result<Self> {
        let own = env::var_os("AZEKURA_CONFIG_DIR").filter(|value| !value.is_empty());
        let (directory, state, cache) = match own {
            Some(own) => {
                // A mount in the background leaves the working directory.
                let own = std::path::absolute(own).context("AZEKURA_CONFIG_DIR")?;
                let (state, cache) = (own.join("state"), own.join("cache"));
                (own, state, cache)
            }
            None => (
                user_directory("XDG_CONFIG_HOME", ".config")?,
                user_directory("XDG_STATE_HOME", ".local/state")?,
                user_directory("XDG_CACHE_HOME", ".cache")?,
            ),
        };
        let path = directory.join("config.toml");
        let file = match read_bounded(&path) {
            Ok(text) => toml::from_str(&text).map_err(|error| {
                let why = error.to_string();
                Failure::new(
                    Code::Config,
                    format!("{}: {}", path.display(), why.trim_end()),
                )
            })?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => ConfigFile::default(),
            Err(error) => {
                let message = format!("{}: {error}", path.display());
                return Err(Failure::new(Code::Config, message));
            }
        };
        Ok(Self {
            directory,
            state,
            cache,
            file,
        })
    }

    /// Where settings and credentials lie.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Where lies what can be had again.
    pub(crate) fn cache(&self) -> &Path {
        &self.cache
    }

    fn settings(&self, server: &Address) -> ServerSettings {
        let settings = self.file.servers.get(&server.to_string());
        settings.copied().unwrap_or_default()
    }

    /// Within which time everything asked of `server` is answered, in the order of precedence:
    /// flag, the server's setting, the general one, the default.
    pub(crate) fn timeout(&self, server: &Address, flag: Option<Span>) -> Duration {
        flag.map(|span| span.0)
            .or(self.settings(server).timeout)
            .or(self.file.timeout)
            .unwrap_or(base::limits::REQUEST_TIME_DEFAULT)
    }

    /// Whether `server` is talked to without TLS.
    pub(crate) fn is_plain(&self, server: &Address, flag: bool) -> bool {
        flag || self.settings(server).plain
    }

    /// Where the credential for a server is kept.
    pub(crate) fn credential_directory(&self, server: &Address) -> PathBuf {
        self.directory.join(CLUSTERS).join(server.file_name())
    }

    /// The credential for a server: the one kept under the address as written, else one kept under
    /// a number that it stands for, else, on the server's own machine, the one of a server that
    /// listens on all addresses.
    ///
    /// # Errors
    /// [`Code::NoCredential`], [`Code::BadCredential`].
    pub(crate) fn credential(
        &self,
        server: &Address,
        resolved: &[SocketAddr],
    ) -> Result<Credential> {
        self.find_credential(server, resolved)
            .map(|(credential, _)| credential)
    }

    /// Since when the credential for a server is kept: an earlier one was replaced then.
    pub(crate) fn credential_time(
        &self,
        server: &Address,
        resolved: &[SocketAddr],
    ) -> Option<SystemTime> {
        let (_, directory) = self.find_credential(server, resolved).ok()?;
        // One that replaces another is renamed into its place.
        fs::metadata(directory).ok()?.modified().ok()
    }

    /// See [`Self::credential`]; and the directory in which it lies.
    fn find_credential(
        &self,
        server: &Address,
        resolved: &[SocketAddr],
    ) -> Result<(Credential, PathBuf)> {
        let mut candidates: Vec<Address> = server.each().collect();
        candidates.extend(resolved.iter().copied().map(Address::from));
        if resolved.iter().any(|address| is_own(address.ip())) {
            let any = ["0.0.0.0", "::"].map(|host| Address::new(host, server.port));
            candidates.extend(any);
        }
        for candidate in candidates {
            let directory = self.credential_directory(&candidate);
            match Credential::load(&directory) {
                Err(IdentityError::Io { source, .. })
                    if source.kind() == io::ErrorKind::NotFound => {}
                Err(error @ IdentityError::Malformed(_)) => {
                    return Err(Failure::from(error)
                        .during(directory.display())
                        .hint(format!("enrol again: azekura login {server} -")));
                }
                outcome => return Ok((outcome?, directory)),
            }
        }
        let (user, kept) = (user_name(), self.directory.join(CLUSTERS));
        let message = format!(
            "{user} has no credential for {server} in {}",
            kept.display()
        );
        let known = match kept_servers(&kept) {
            known if known.is_empty() => String::new(),
            known => format!(" (there are credentials for {})", known.join(", ")),
        };
        Err(Failure::new(Code::NoCredential, message).hint(format!(
            "is the address right?{known} azekura doctor {server} says whether there is a server \
             at all; then ask an administrator for a join string (azekura join create {server}), \
             then: azekura login {server} -"
        )))
    }

    /// Keeps a credential for a server, only for this user to read.
    ///
    /// # Errors
    /// [`Code::BadCredential`] with the path.
    pub(crate) fn save_credential(&self, server: &Address, credential: &Credential) -> Result<()> {
        make_private(&self.directory)?;
        make_private(&self.directory.join(CLUSTERS))?;
        Ok(credential.save(&self.credential_directory(server))?)
    }

    /// The line to a server as an earlier mount measured it: download, upload. What cannot be read
    /// is forgotten: it only saves the first seconds of measuring.
    pub(crate) fn line(&self, server: &Address) -> (Option<LineMemory>, Option<LineMemory>) {
        let line = self.line_file(server);
        line.map_or((None, None), |line| (line.download, line.upload))
    }

    /// How many bytes the session received that measured the line: whether its rate is the line's,
    /// or only that of somebody who wanted little.
    pub(crate) fn line_received_bytes(&self, server: &Address) -> u64 {
        self.line_file(server).map_or(0, |line| line.received_bytes)
    }

    fn line_file(&self, server: &Address) -> Option<LineFile> {
        let text = read_bounded(&self.line_path(server)).ok()?;
        let line: LineFile = serde_json::from_str(&text).ok()?;
        (line.format == LINE_FORMAT).then_some(line)
    }

    /// Remembers the line to a server, and how much the session received that measured it.
    ///
    /// # Errors
    /// Of the files below the state directory.
    pub(crate) fn save_line(
        &self,
        server: &Address,
        (download, upload): (Option<LineMemory>, Option<LineMemory>),
        received_bytes: u64,
    ) -> Result<()> {
        if download.is_none() && upload.is_none() {
            return Ok(());
        }
        let line = LineFile {
            format: LINE_FORMAT,
            download,
            upload,
            received_bytes,
        };
        let path = self.line_path(server);
        self.make_state(Some("lines"))?;
        let temporary = path.with_extension(format!("{}.new", std::process::id()));
        let text = serde_json::to_vec(&line).map_err(|e| Failure::local("the line", e))?;
        fs::write(&temporary, text).context(temporary.display())?;
        fs::rename(&temporary, &path).context(path.display())
    }

    fn line_path(&self, server: &Address) -> PathBuf {
        self.state
            .join("lines")
            .join(format!("{}.json", server.file_name()))
    }

    /// Where the mount on `directory` logs unless told otherwise. Makes the directory for it.
    ///
    /// # Errors
    /// Of making it.
    pub(crate) fn mount_log(&self, directory: &Path) -> Result<PathBuf> {
        self.make_state(None)?;
        let plain = |c: char| {
            if c.is_ascii_alphanumeric() || c == '.' {
                c
            } else {
                '-'
            }
        };
        let name: String = directory.to_string_lossy().chars().map(plain).collect();
        // Longer paths share a prefix; the end tells them apart, and 255 bytes are a name's limit.
        let start = name.len().saturating_sub(200);
        Ok(self.state.join(format!("mount{}.log", &name[start..])))
    }

    /// What signs images that this user publishes; whether it is there or not.
    pub(crate) fn disk_key(&self) -> PathBuf {
        self.directory.join("disk.key")
    }

    /// Whose signatures are believed, by repository; whether it is there or not.
    pub(crate) fn known_disks(&self) -> PathBuf {
        self.directory.join("known_disks")
    }

    /// Makes the directory for settings and secrets.
    ///
    /// # Errors
    /// Of making it.
    pub(crate) fn make_directory(&self) -> Result<()> {
        make_private(&self.directory)
    }

    /// A directory for what is remembered of disks. Makes it.
    ///
    /// # Errors
    /// Of making it.
    pub(crate) fn disks(&self, below: &str) -> Result<PathBuf> {
        let path = self.state.join("disks").join(below);
        make_private(&path)?;
        Ok(path)
    }

    /// Where chunks are cached unless told otherwise.
    pub(crate) fn chunk_cache(&self) -> PathBuf {
        self.cache.join("chunks")
    }

    fn make_state(&self, below: Option<&str>) -> Result<()> {
        make_private(&self.state)?;
        below.map_or(Ok(()), |name| make_private(&self.state.join(name)))
    }
}

/// Makes a directory, and those above it, for this user alone.
fn make_private(path: &Path) -> Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder
        .recursive(true)
        .mode(0o700)
        .create(path)
        .context(path.display())
}

fn read_bounded(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    fs::File::open(path)?
        .take(FILE_BYTES_MAX + 1)
        .read_to_string(&mut text)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            "the file is too long",
        ));
    }
    Ok(text)
}

/// The first servers, by name, for which credentials are kept: what a mistyped address may have
/// meant.
fn kept_servers(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut servers: Vec<String> = names.filter_map(|name| server_of(&name)).collect();
    servers.sort_unstable();
    servers.truncate(SERVERS_NAMED_MAX);
    servers
}

/// The server whose credential a file of this name holds ([`Address::file_name`] backwards; only
/// the colons of a number of version 6 became underscores).
fn server_of(name: &str) -> Option<String> {
    let (host, port) = name.rsplit_once('_')?;
    port.parse::<u16>().ok()?;
    Some(match host.contains('_') {
        true => format!("[{}]:{port}", host.replace('_', ":")),
        false => format!("{host}:{port}"),
    })
}

/// `$VARIABLE/azekura`, else `~/FALLBACK/azekura`. A relative value does not count (XDG Base
/// Directory Specification).
fn user_directory(variable: &str, fallback: &str) -> Result<PathBuf> {
    let set = env::var_os(variable)
        .map(PathBuf::from)
        .filter(|path| path.is_absolute());
    let base = match set {
        Some(base) => base,
        None => home()?.join(fallback),
    };
    Ok(base.join("azekura"))
}

fn home() -> Result<PathBuf> {
    let set = env::var_os("HOME")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute());
    let from_database = || {
        let uid = nix::unistd::geteuid();
        nix::unistd::User::from_uid(uid)
            .ok()
            .flatten()
            .map(|user| user.dir)
    };
    set.or_else(from_database).ok_or_else(|| {
        Failure::new(Code::Config, "this user has no home directory")
            .hint("set AZEKURA_CONFIG_DIR to a directory for settings and credentials")
    })
}

/// The name of the user as whom this process acts, or the number of one who has none.
pub(crate) fn user_name() -> String {
    let uid = nix::unistd::geteuid();
    let user = nix::unistd::User::from_uid(uid).ok().flatten();
    user.map_or_else(|| uid.to_string(), |user| user.name)
}

/// Whether an address is one of this machine: only those can be bound to.
fn is_own(address: IpAddr) -> bool {
    UdpSocket::bind((address, 0)).is_ok()
}

/// Where a service manager wants to be told that the server is ready (sd_notify(3)).
pub(crate) fn notify_socket() -> Option<std::ffi::OsString> {
    env::var_os("NOTIFY_SOCKET").filter(|value| !value.is_empty())
}

/// The user's wish what to log, as in `RUST_LOG=client=debug`.
pub(crate) fn log_filter() -> Option<String> {
    env::var("RUST_LOG").ok().filter(|value| !value.is_empty())
}

/// A program on the search path.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path)
        .map(|directory| directory.join(name))
        .find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(file: &str) -> Config {
        let scratch = PathBuf::from("nowhere");
        Config {
            directory: scratch.clone(),
            state: scratch.clone(),
            cache: scratch,
            file: toml::from_str(file).expect("a test's own configuration"),
        }
    }

    #[test]
    fn flags_go_before_settings_and_settings_before_defaults() {
        let far: Address = "far:7700".parse().expect("an address");
        let near: Address = "near:7700".parse().expect("an address");
        let seconds = Duration::from_secs;
        let settings = "timeout = \"1m\"\n[servers.\"far:7700\"]\ntimeout = \"5s\"\nplain = true\n";
        let config = config(settings);
        assert_eq!(config.timeout(&far, Some(Span(seconds(2)))), seconds(2));
        assert_eq!(config.timeout(&far, None), seconds(5));
        assert_eq!(config.timeout(&near, None), seconds(60));
        assert!(config.is_plain(&far, false) && !config.is_plain(&near, false));
        assert!(config.is_plain(&near, true));
        let nothing = super::tests::config("");
        assert_eq!(
            nothing.timeout(&far, None),
            base::limits::REQUEST_TIME_DEFAULT
        );
    }

    #[test]
    fn unknown_settings_are_refused_by_name() {
        let error = toml::from_str::<ConfigFile>("time_out = \"1s\"").expect_err("misspelt");
        assert!(error.to_string().contains("time_out"), "{error}");
        assert!(toml::from_str::<ConfigFile>("timeout = \"fast\"").is_err());
    }

    #[test]
    fn time_spans_are_read_as_people_write_them() {
        let span = |text: &str| text.parse::<Span>().map(|span| span.0.as_millis()).ok();
        assert_eq!(span("30s"), Some(30_000));
        assert_eq!(span("10m"), Some(600_000));
        assert_eq!(span("1h 30m"), Some(5_400_000));
        assert_eq!(span("250ms"), Some(250));
        assert_eq!(span("900d"), Some(900 * 86_400_000));
        assert_eq!(span("2w"), Some(14 * 86_400_000));
        assert_eq!(span("1d 12h"), Some(36 * 3_600_000));
        for bad in ["", "30", "-5s", "-2d", "0s", "0d", "1mo", "1y", "soon"] {
            assert_eq!(span(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_line_is_remembered_per_server_and_damage_is_forgotten() {
        let scratch = tempfile::tempdir().expect("a directory");
        let mut config = config("");
        config.state = scratch.path().join("state");
        let (far, near) = ("far:1".parse().expect("ok"), "near:1".parse().expect("ok"));
        let memory = LineMemory {
            rtt_nanos: 100_000_000,
            rate_bytes_per_second: 117_000_000,
        };
        config
            .save_line(&far, (Some(memory), None), 7)
            .expect("room on the disk");
        assert_eq!(config.line(&far), (Some(memory), None));
        assert_eq!(config.line_received_bytes(&far), 7);
        assert_eq!(config.line(&near), (None, None));
        fs::write(config.line_path(&far), "{\"format\":1").expect("room on the disk");
        assert_eq!(config.line(&far), (None, None));
    }

    #[test]
    fn logs_of_different_mounts_have_different_names() {
        let scratch = tempfile::tempdir().expect("a directory");
        let mut config = config("");
        config.state = scratch.path().join("state");
        let log = |path: &str| config.mount_log(Path::new(path)).expect("room on the disk");
        assert!(log("/mnt/lab").ends_with("mount-mnt-lab.log"));
        let deep = "/x".repeat(2000);
        let name = log(&deep).file_name().expect("a name").len();
        assert!(name <= 255, "{name}");
    }
}
