//! `azekura disk web`.

use super::place::Place;
use super::runtime;
use crate::config::Config;
use crate::errors::{Code, Context, Failure, Result};
use crate::output;
use ::disk::Repository;
use std::net::SocketAddr;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

/// Serve a repository over plain HTTP, in the foreground
///
/// Any web server can serve a repository in a directory; this one can, too, and it serves one that
/// lies in a volume: on a storage server's machine, chunks take one hop less. It gives files of
/// the repository and nothing else, to whoever reaches it, without a password and without
/// encryption; whoever reads them verifies them.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  azekura disk web 127.0.0.1:7700/lab:/images --listen 0.0.0.0:8080")]
pub(in crate::cli) struct Web {
    /// The repository: a directory, or HOST:PORT/VOLUME:/PATH
    #[arg(value_name = "REPOSITORY")]
    place: Place,
    /// Where to listen; with port 0 one that is free is chosen
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
}

impl Web {
    pub(super) fn run(self, _: &Config) -> Result<()> {
        let place = self.place.absolute()?;
        let Some(directory) = place.local()? else {
            let message = format!("{place} is served already, by others");
            let failure = Failure::new(Code::DiskRepository, message);
            return Err(failure.hint("name a directory, or a volume: HOST:PORT/VOLUME:/PATH"));
        };
        Repository::open(&directory)?;
        crate::cli::server::raise_descriptor_limit();
        let runtime = runtime()?;
        let outcome = runtime.block_on(async {
            let listener = TcpListener::bind(self.listen).await;
            let listener = listener.context(self.listen)?;
            let address = listener.local_addr().context(self.listen)?;
            let mut end = signal(SignalKind::terminate()).context("signals")?;
            let mut interrupt = signal(SignalKind::interrupt()).context("signals")?;
            output::line(format_args!("{place} is served at http://{address}"))?;
            tokio::select! {
                over = ::disk::web::serve(listener, &directory) => {
                    over.map(|never| match never {}).context(directory.display())
                }
                _ = end.recv() => Ok(()),
                _ = interrupt.recv() => Ok(()),
            }
        });
        // Whoever is being answered is not waited for.
        runtime.shutdown_background();
        outcome
    }
}
