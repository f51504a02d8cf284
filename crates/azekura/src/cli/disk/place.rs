//! Where images come from: a repository in a directory, a volume, a bucket, or on a web server.

use super::bucket;
use super::keys::Keys;
use super::volume;
use crate::address::{Address, FileAddress};
use crate::config::Config;
use crate::errors::{Code, Context, Failure, Result};
use crate::output;
use ::disk::bucket::SCHEME;
use ::disk::{Digest, Directory, Http, HttpOptions, Mirrors, PublicKey, Repository, Source, Tag};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use tokio::runtime::Runtime;

/// A repository as the user wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Url(String),
    /// With its scheme.
    Bucket(String),
    Volume(FileAddress),
    Directory(PathBuf),
}

/// Text that is neither a directory nor a URL that can be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is neither a directory, nor HOST:PORT/VOLUME:/PATH, nor a URL that begins with http://, \
     https:// or s3://"
)]
pub(super) struct BadPlace(String);

impl FromStr for Place {
    type Err = BadPlace;

    fn from_str(text: &str) -> Result<Self, BadPlace> {
        let is_url = ["http://", "https://"]
            .iter()
            .any(|scheme| text.starts_with(scheme));
        match is_url {
            true => Ok(Self::Url(text.trim_end_matches('/').to_owned())),
            false if text.starts_with(SCHEME) && text.len() > SCHEME.len() => {
                Ok(Self::Bucket(text.trim_end_matches('/').to_owned()))
            }
            false if is_of_a_server(text) => {
                let address = text.parse().map(Self::Volume);
                address.map_err(|_| BadPlace(text.to_owned()))
            }
            // A directory of this form can be written with ./ before it.
            false
                if text.is_empty() || text.split('/').next().is_some_and(|s| s.ends_with(':')) =>
            {
                Err(BadPlace(text.to_owned()))
            }
            false => Ok(Self::Directory(PathBuf::from(text))),
        }
    }
}

/// Whether text begins with the address of a server.
fn is_of_a_server(text: &str) -> bool {
    let server = text.split_once('/').map(|(server, _)| server);
    server.is_some_and(|server| server.parse::<Address>().is_ok())
}

/// Without a password.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Directory(path) => f.write_str(&output::plain(&path.to_string_lossy())),
            Self::Bucket(url) => f.write_str(&output::plain(url)),
            Self::Volume(address) => address.fmt(f),
            Self::Url(url) => {
                let (scheme, rest) = url.split_once("://").unwrap_or(("http", url));
                let host_end = rest.find('/').unwrap_or(rest.len());
                let (host, path) = rest.split_at(host_end);
                let host = match host.rsplit_once('@') {
                    Some((user, host)) => {
                        let name = user.split(':').next().unwrap_or_default();
                        format!("{name}@{host}")
                    }
                    None => host.to_owned(),
                };
                f.write_str(&output::plain(&format!("{scheme}://{host}{path}")))
            }
        }
    }
}

impl Place {
    /// The same, from whichever directory it is looked at.
    pub(super) fn absolute(self) -> Result<Self> {
        match self {
            Self::Url(_) | Self::Bucket(_) | Self::Volume(_) => Ok(self),
            Self::Directory(path) => match path.canonicalize() {
                Ok(path) => Ok(Self::Directory(path)),
                // It may be going to be made.
                Err(_) => std::path::absolute(&path)
                    .context(path.display())
                    .map(Self::Directory),
            },
        }
    }

    /// As it is given to another process of this program.
    pub(super) fn argument(&self) -> std::ffi::OsString {
        match self {
            Self::Url(url) | Self::Bucket(url) => url.into(),
            Self::Volume(address) => address.to_string().into(),
            Self::Directory(path) => path.into(),
        }
    }

    /// What tells it from others in names of files.
    pub(super) fn digest(&self) -> String {
        let text = self.to_string();
        Digest::Sha512Half.id_of(text.as_bytes()).to_string()[..16].to_owned()
    }

    /// The repository, to be written to.
    ///
    /// # Errors
    /// [`Code::DiskRepository`].
    pub(super) fn repository(&self, runtime: &Runtime, way: &Way) -> Result<Repository> {
        match self {
            Self::Directory(path) => Ok(Repository::open(path)?),
            Self::Volume(address) => Ok(Repository::open(mounted(address)?)?),
            Self::Bucket(_) => self.made(runtime, way),
            Self::Url(_) => Err(self.only_gives_files()),
        }
    }

    /// The repository, to be written to; made if it is not there.
    ///
    /// # Errors
    /// [`Code::DiskRepository`], and those of making directories.
    pub(super) fn made(&self, runtime: &Runtime, way: &Way) -> Result<Repository> {
        match self {
            Self::Directory(path) => Ok(Repository::create(path)?),
            Self::Volume(address) => Ok(Repository::create(mounted(address)?)?),
            Self::Bucket(url) => {
                let bucket = bucket::open(url, way.http(), runtime)?;
                Ok(Repository::in_bucket(bucket))
            }
            Self::Url(_) => Err(self.only_gives_files()),
        }
    }

    /// Its directory on this machine, if it has one: of a volume while it is mounted.
    ///
    /// # Errors
    /// [`Code::DiskRepository`] if a volume cannot be mounted.
    pub(super) fn local(&self) -> Result<Option<PathBuf>> {
        match self {
            Self::Directory(path) => Ok(Some(path.clone())),
            Self::Volume(address) => mounted(address).map(Some),
            Self::Url(_) | Self::Bucket(_) => Ok(None),
        }
    }

    fn only_gives_files(&self) -> Failure {
        let message = format!("{self} is a web server, which only gives files");
        Failure::new(Code::DiskRepository, message)
            .hint("name the directory that it serves, on its machine")
    }

    /// Its files, from here or from whichever mirror is quickest.
    ///
    /// # Errors
    /// [`Code::DiskRepository`] if there cannot be one.
    pub(super) fn source(&self, runtime: &Runtime, way: &Way) -> Result<Arc<dyn Source>> {
        let here = self.own_source(runtime, way)?;
        if way.mirrors.is_empty() {
            return Ok(here);
        }
        let others = way.mirrors.iter();
        let others = others.map(|mirror| mirror.own_source(runtime, way));
        let all: Result<Vec<_>> = std::iter::once(Ok(here)).chain(others).collect();
        let mirrors = Mirrors::new(all?, runtime.handle().clone());
        let mirrors = mirrors.map_err(|error| Failure::new(Code::DiskInvalid, error.to_string()));
        Ok(Arc::new(mirrors?))
    }

    fn own_source(&self, runtime: &Runtime, way: &Way) -> Result<Arc<dyn Source>> {
        match self {
            Self::Directory(path) => {
                // Else every file of it would be missed.
                Repository::open(path)?;
                Ok(Arc::new(Directory::new(path)))
            }
            Self::Volume(address) => Self::Directory(mounted(address)?).own_source(runtime, way),
            Self::Bucket(url) => Ok(Arc::new(bucket::open(url, way.http(), runtime)?)),
            Self::Url(url) => {
                let http = Http::new(url, &way.http(), runtime.handle().clone());
                let bad = |error: &dyn fmt::Display| {
                    Failure::new(Code::DiskRepository, output::plain(&error.to_string()))
                };
                Ok(Arc::new(http.map_err(|error| bad(&error))?))
            }
        }
    }
}

/// Where a directory of a volume is, as long as this command runs.
fn mounted(address: &FileAddress) -> Result<PathBuf> {
    let root = volume::directory(&address.volume)?;
    let names = address.path.iter();
    Ok(names.fold(root, |path, name| path.join(name.as_os_str())))
}

/// How a repository is reached, and whose word counts there.
#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct Way {
    /// Believe what this key has signed, now and later; several times for several keys. Without
    /// it, one's own key, and the first one that is met in a repository
    #[arg(long = "key", value_name = "KEY")]
    pub(super) keys: Vec<PublicKey>,
    /// The URL of a proxy
    #[arg(long, value_name = "URL")]
    pub(super) proxy: Option<String>,
    /// Another copy of the repository, which is read as well; several times for several. The one
    /// that answers quickest is asked, and another one where it does not answer, or answers wrong
    #[arg(long = "mirror", value_name = "REPOSITORY")]
    pub(super) mirrors: Vec<Place>,
}

impl Way {
    /// How a server is asked.
    fn http(&self) -> HttpOptions {
        HttpOptions {
            proxy: self.proxy.clone(),
            ..HttpOptions::default()
        }
    }

    /// As it is given to another process of this program.
    pub(super) fn arguments(&self) -> Vec<std::ffi::OsString> {
        let keys = self.keys.iter().map(|key| format!("--key={key}").into());
        let proxy = self
            .proxy
            .iter()
            .map(|proxy| format!("--proxy={proxy}").into());
        let mirrors = self.mirrors.iter().map(|mirror| {
            let mut argument = std::ffi::OsString::from("--mirror=");
            argument.push(mirror.argument());
            argument
        });
        keys.chain(proxy).chain(mirrors).collect()
    }

    fn absolute(self) -> Result<Self> {
        let mirrors = self.mirrors.into_iter().map(Place::absolute);
        Ok(Self {
            mirrors: mirrors.collect::<Result<_>>()?,
            ..self
        })
    }
}

/// Which repository a command is about
#[derive(Clone, Debug, clap::Args)]
pub(super) struct At {
    /// The repository: a directory, HOST:PORT/VOLUME:/PATH, s3://BUCKET/PREFIX, or a URL for what
    /// only reads [default: the one used last]
    #[arg(long, value_name = "REPOSITORY")]
    at: Option<Place>,
    #[command(flatten)]
    pub(super) way: Way,
}

/// Where the repository that was used last is noted.
const LAST: &str = "last";
/// Nobody writes longer addresses.
const LAST_BYTES_MAX: u64 = 8192;

impl At {
    /// The repository that is meant.
    ///
    /// # Errors
    /// [`Code::DiskRepository`] if none was named and none used before.
    pub(super) fn place(&self, config: &Config) -> Result<Place> {
        if let Some(place) = &self.at {
            let place = place.clone().absolute()?;
            remember(config, &place);
            return Ok(place);
        }
        let noted = config.disks("")?.join(LAST);
        let is_short = std::fs::metadata(&noted).is_ok_and(|found| found.len() < LAST_BYTES_MAX);
        let text = is_short
            .then(|| std::fs::read_to_string(&noted).ok())
            .flatten();
        let place: Option<Place> = text.and_then(|text| text.trim_end().parse().ok());
        let Some(place) = place else {
            let message = "which repository? none was named, and none used before";
            return Err(Failure::new(Code::DiskRepository, message)
                .hint("--at DIRECTORY, --at s3://BUCKET/PREFIX, or --at http://..."));
        };
        output::note(format_args!(
            "in {place}, the repository used last (--at names another)"
        ));
        Ok(place)
    }

    /// The repository with whose word counts there.
    pub(super) fn keys<'a>(&self, config: &'a Config, place: &Place) -> Result<Keys<'a>> {
        Keys::of(config, place, &self.way)
    }
}

/// Notes which repository is used. That it cannot is no reason not to use it.
pub(super) fn remember(config: &Config, place: &Place) {
    let note = || -> Result<()> {
        let directory = config.disks("")?;
        let new = directory.join(format!(".{LAST}-{}", std::process::id()));
        let text = place.argument();
        std::fs::write(&new, [text.as_encoded_bytes(), b"\n"].concat()).context(new.display())?;
        std::fs::rename(&new, directory.join(LAST)).context(new.display())
    };
    if let Err(failure) = note() {
        tracing::debug!("{}", failure.message());
    }
}

/// A disk: a name in a repository
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Image {
    /// The repository: a directory, HOST:PORT/VOLUME:/PATH, or an http://, https:// or s3:// URL
    #[arg(value_name = "REPOSITORY")]
    pub(super) place: Place,
    /// IMAGE:LABEL
    #[arg(id = "disk_name", value_name = "NAME")]
    pub(super) name: Tag,
    #[command(flatten)]
    pub(super) way: Way,
}

impl Image {
    /// The same, from whichever directory it is looked at.
    pub(super) fn absolute(self) -> Result<Self> {
        Ok(Self {
            place: self.place.absolute()?,
            way: self.way.absolute()?,
            ..self
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repository_is_a_url_or_a_directory() {
        let place = |text: &str| text.parse::<Place>();
        let url = |text: &str| Ok(Place::Url(text.to_owned()));
        assert_eq!(place("http://far:80/images/"), url("http://far:80/images"));
        assert_eq!(place("https://far"), url("https://far"));
        for directory in ["./www", "www/images", "/srv", "a:b", "./s3:/x"] {
            assert_eq!(place(directory), Ok(Place::Directory(directory.into())));
        }
        let bucket = |text: &str| Ok(Place::Bucket(text.to_owned()));
        assert_eq!(place("s3://bucket/images/"), bucket("s3://bucket/images"));
        let volume = |text: &str| Ok(Place::Volume(text.parse().expect("an address")));
        for text in ["far:7700/v:/images", "far:7700/v", "[::1]:7700/v:/a/b"] {
            assert_eq!(place(text), volume(text));
        }
        for bad in ["", "ftp://far/x", "s3://", "http:/far", "far:7700/v/images"] {
            assert!(place(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_password_is_not_shown() {
        let shown = |text: &str| text.parse::<Place>().expect("a place").to_string();
        assert_eq!(shown("https://me:secret@far/a@b"), "https://me@far/a@b");
        assert_eq!(shown("https://far/a"), "https://far/a");
    }
}
