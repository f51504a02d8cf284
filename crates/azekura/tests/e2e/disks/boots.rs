//! A machine that boots from a disk: its root file system lies in chunks on a web server.
//!
//! The kernel is Debian's, the machine is emulated, and all that it has is busybox, so that a boot
//! takes seconds. `cargo xtask deep boot` does the same with a whole Debian.

use super::web::Web;
use super::{MIB, Scene, has, tool};
use crate::checks::json;
use crate::common::text;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use verify::powercut::{KERNEL_DEFAULT, Kernel, resolve};

/// An emulated machine on a busy one; what takes longer is not coming.
const LIMIT: Duration = Duration::from_secs(240);

/// The first file system: it finds the root file system on the disk, and goes there.
const FIRST: &str = "#!/bin/busybox sh
export PATH=/bin
/bin/busybox mkdir -p /proc /dev /root
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t devtmpfs dev /dev
dmesg -n 1
while read -r module; do
    insmod \"/modules/$module\" || echo \"AZ no module $module\"
done < /modules/order
mount -t ext4 -o rw /dev/vda /root || echo AZ no root
exec switch_root /root /sbin/init
";

/// What runs from the disk: says what it finds there, writes, and syncs.
const INIT: &str = "#!/bin/busybox sh
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t devtmpfs dev /dev
stty -onlcr < /dev/console
echo \"AZ found $(cat /var/mark)\"
echo \"written in boot $(($(cat /var/count) + 1))\" > /var/mark
echo $(($(cat /var/count) + 1)) > /var/count
cp /bin/busybox /var/copy
sync
echo \"AZ synced\"
while :; do sleep 1000; done
";

const NAMES: [&str; 9] = [
    "sh", "cat", "cp", "echo", "mount", "sleep", "stty", "sync", "ls",
];

/// A root file system with one program, which knows how often it was booted.
fn root(scene: &Scene, kernel: &Kernel) {
    let tree = scene.path("root");
    for directory in ["bin", "sbin", "proc", "dev", "var"] {
        fs::create_dir_all(tree.join(directory)).unwrap();
    }
    let program = |name: &str, content: &[u8]| {
        let path = tree.join(name);
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    };
    program("bin/busybox", &fs::read(kernel.busybox()).unwrap());
    program("sbin/init", INIT.as_bytes());
    for name in NAMES {
        std::os::unix::fs::symlink("busybox", tree.join("bin").join(name)).unwrap();
    }
    fs::write(tree.join("var/mark"), "nothing\n").unwrap();
    fs::write(tree.join("var/count"), "0\n").unwrap();
    let image = scene.path("root.img");
    File::create(&image).unwrap().set_len(64 * MIB).unwrap();
    let make = ["-q", "-F", "-d", text(&tree), text(&image)];
    tool("mkfs.ext4", &make);
}

/// A machine; it loses its power when this goes.
pub(super) struct Machine {
    child: Child,
    lines: Receiver<String>,
}

impl Machine {
    /// With the scene's disk as its own.
    pub(super) fn start(scene: &Scene, kernel: &Path, drive: &str) -> Self {
        let socket = scene.path("disk.sock");
        let drive = format!(
            "file=nbd:unix:{},format=raw,if=virtio,{drive}",
            text(&socket)
        );
        let mut child = Command::new("qemu-system-x86_64")
            .args(["-nodefaults", "-no-user-config", "-display", "none"])
            .args([
                "-machine", "q35", "-accel", "tcg", "-cpu", "max", "-smp", "1",
            ])
            .args(["-m", "256M", "-no-reboot", "-serial", "stdio"])
            .args([
                "-kernel",
                text(kernel),
                "-initrd",
                text(&scene.path("initrd")),
            ])
            .args(["-append", "console=ttyS0 quiet rdinit=/init panic=-1"])
            .args(["-drive", &drive])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                // A machine that nobody listens to may say what it likes.
                let _ = sender.send(line);
            }
        });
        Self { child, lines }
    }

    /// The next line that is meant for us.
    #[track_caller]
    pub(super) fn says(&self) -> String {
        let deadline = Instant::now() + LIMIT;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let line = self.lines.recv_timeout(left).unwrap();
            if let Some((_, said)) = line.trim_end().split_once("AZ ") {
                return said.to_owned();
            }
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The kernel that `verify powercut` uses as well; none, and why, if it cannot be had here.
fn kernel(scene: &Scene) -> Option<Kernel> {
    let home = std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache"));
    let cache = std::env::var_os("XDG_CACHE_HOME").map(Into::into).or(home);
    let cache = cache.map_or_else(
        || scene.path("kernels"),
        |cache| cache.join("azekura/powercut"),
    );
    let found = resolve(KERNEL_DEFAULT).and_then(|package| Kernel::get(&cache, &package));
    let said = found.as_ref().err().map(ToString::to_string);
    if let Some(why) = said {
        eprintln!("skipped: no kernel: {why}");
    }
    found.ok()
}

/// Makes a root file system in `root.img`, and what boots from it; none if that cannot be had here.
pub(super) fn prepared(scene: &Scene) -> Option<Kernel> {
    if !has("qemu-system-x86_64") || !has("mkfs.ext4") {
        return None;
    }
    let kernel = kernel(scene)?;
    let initrd = kernel.initrd(FIRST, &["ext4"]).unwrap();
    fs::write(scene.path("initrd"), initrd).unwrap();
    root(scene, &kernel);
    Some(kernel)
}

#[test]
fn a_machine_boots_from_a_web_server_and_what_it_syncs_is_the_next_version() {
    let scene = Scene::new();
    let Some(kernel) = prepared(&scene) else {
        return;
    };
    scene.publish(&scene.path("root.img"), "root:1");
    let web = Web::of(&scene.path("www"));
    let url = web.url("images");

    scene.serve(&url, "root:1", &["--writable"]);
    let machine = Machine::start(&scene, &kernel.image, "cache=writeback");
    assert_eq!(machine.says(), "found nothing");
    assert_eq!(machine.says(), "synced");
    // As if somebody had pulled the plug.
    drop(machine);
    scene.line("detach unix:disk.sock").ok();
    let commit = format!("commit {url} root:1 --to www/images --cache cache --name root:2 --json");
    let committed = json(scene.line(commit));
    let (new, all) = (&committed["new_chunks"], &committed["chunks"]);
    assert!(
        new.as_u64() < all.as_u64().map(|all| all / 4),
        "{committed}"
    );
    let export = "export root:2 out.img --at www/images --cache cache";
    scene.line(export).ok();
    let out = scene.path("out.img");
    let fsck = ["-fp", text(&out)];
    // The journal is replayed, and nothing else is found.
    let repaired = crate::common::run(Command::new("e2fsck").args(fsck));
    assert!(
        matches!(repaired.status.code(), Some(0 | 1)),
        "{repaired:?}"
    );
    tool("e2fsck", &["-fn", text(&out)]);

    scene.serve(&url, "root:2", &[]);
    let machine = Machine::start(&scene, &kernel.image, "snapshot=on");
    assert_eq!(machine.says(), "found written in boot 1");
    assert_eq!(machine.says(), "synced");
    drop(machine);
    scene.line("detach unix:disk.sock").ok();
    // Each chunk that was needed was asked for once, by both machines together.
    let counts = web.chunk_counts();
    assert!(counts.iter().all(|count| *count == 1), "{counts:?}");
}
