//! A private sshd: own port, keys and configuration in the run's temporary directory.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use azlink::Side;

use crate::process::{Running, run};
use crate::site::Site;

pub(crate) const PORT: u16 = 2222;
const PROGRAM: &str = "/usr/sbin/sshd";

pub(crate) fn why_not() -> Option<String> {
    (!Path::new(PROGRAM).exists()).then(|| "sshd is not installed (openssh-server)".to_owned())
}

/// The key that the client shows.
pub(crate) fn client_key(site: &Site) -> PathBuf {
    site.temp().join("client_key")
}

pub(crate) fn start(site: &Site) -> anyhow::Result<Running> {
    let temp = site.temp();
    let host_key = temp.join("host_key");
    for key in [&host_key, &client_key(site)] {
        if key.exists() {
            continue;
        }
        let mut keygen = Command::new("ssh-keygen");
        keygen
            .args(["-q", "-t", "ed25519", "-N", "", "-f"])
            .arg(key);
        run(keygen, &temp.join("keygen.log"), Duration::from_secs(20))?;
    }
    let config = temp.join("sshd_config");
    let text = format!(
        "Port {PORT}\nListenAddress {}\nHostKey {}\nAuthorizedKeysFile {}\nPidFile none\n\
         PermitRootLogin prohibit-password\nPasswordAuthentication no\nUsePAM no\nStrictModes no\n\
         UseDNS no\nMaxStartups 100\nSubsystem sftp internal-sftp\n",
        site.server_address(),
        host_key.display(),
        client_key(site).with_extension("pub").display(),
    );
    std::fs::write(&config, text)?;
    let mut command = site.command(Side::Server, PROGRAM);
    command.args(["-D", "-e", "-f"]).arg(&config);
    let mut sshd = Running::start(command, &temp.join("sshd.log"))?;
    site.wait_port(&mut sshd, PORT)?;
    Ok(sshd)
}
