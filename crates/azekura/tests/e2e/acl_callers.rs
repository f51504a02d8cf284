//! Callers of whom the kernel says less than it knows, and what a right to change ACLs is not, on
//! a volume with rich ACLs.

use crate::acl::{AUDIT, AYA, OTHER, OWNER, Office, may, posix_of, shell};
use crate::common::{obstacle, run, text};
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Opens a file by a worker of an `io_uring` that was there before the process got its groups:
/// FILE UID GROUP-BEFORE GROUP-AFTER, 0 for none. Ends with the error's number.
const BY_WORKER: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <grp.h>
#include <linux/io_uring.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static struct io_uring_params params;
static char *queue, *done;
static struct io_uring_sqe *entries;

static int open_by(int ring, const char *path) {
    unsigned *tail = (unsigned *)(queue + params.sq_off.tail), at = *tail % params.sq_entries;
    entries[at] = (struct io_uring_sqe){.opcode = IORING_OP_OPENAT, .flags = IOSQE_ASYNC,
        .fd = AT_FDCWD, .addr = (unsigned long)path, .open_flags = O_RDONLY};
    ((unsigned *)(queue + params.sq_off.array))[at] = at;
    __atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
    if (syscall(SYS_io_uring_enter, ring, 1, 1, IORING_ENTER_GETEVENTS, 0, 0) != 1) exit(200);
    unsigned *head = (unsigned *)(done + params.cq_off.head);
    struct io_uring_cqe *results = (struct io_uring_cqe *)(done + params.cq_off.cqes);
    int result = results[*head % params.cq_entries].res;
    __atomic_store_n(head, *head + 1, __ATOMIC_RELEASE);
    return result;
}

int main(int count, char **words) {
    gid_t before = atoi(words[3]), after = atoi(words[4]);
    uid_t user = atoi(words[2]);
    int share = MAP_SHARED | MAP_POPULATE, access = PROT_READ | PROT_WRITE;
    if (setgroups(before != 0, &before)) return 201;
    int ring = syscall(SYS_io_uring_setup, 4, &params);
    if (ring < 0) return 202;
    queue = mmap(0, 8192, access, share, ring, IORING_OFF_SQ_RING);
    done = mmap(0, 8192, access, share, ring, IORING_OFF_CQ_RING);
    entries = mmap(0, 4096, access, share, ring, IORING_OFF_SQES);
    if (open_by(ring, "/dev/null") < 0) return 203;
    if (setgroups(after != 0, &after) || setresgid(user, user, user)) return 204;
    if (setresuid(user, user, user)) return 205;
    int result = open_by(ring, words[1]);
    return result < 0 ? -result : 0;
}
"#;

/// A mount's process and the mount, which end with the test.
struct Foreground(Child, PathBuf);

impl Drop for Foreground {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
        // If the test has failed it is still there.
        let _ = Command::new("umount").arg("-lq").arg(&self.1).status();
    }
}

/// A share with rich ACLs: a notice for all but the auditors, and a list for the auditors alone.
fn office() -> Office {
    let office = Office::new();
    for (name, mode) in [("notice", 0o644), ("audited", 0o640)] {
        let path = office.export().join(name);
        fs::write(&path, name).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        chown(&path, Some(OTHER), Some(AUDIT)).unwrap();
    }
    let script = format!("setfacl -m g:{AUDIT}:---,g::--- notice");
    run(&mut shell(0, None, &office.export(), &script)).ok();
    office.acl(&["enable", &office.volume]);
    office
}

fn device_of(path: &Path) -> u64 {
    fs::metadata(path).unwrap().dev()
}

#[test]
fn whoever_is_outside_the_pid_namespace_of_a_mount_may_nothing() {
    if let Some(why) = obstacle() {
        return eprintln!("{why}");
    }
    let mut office = office();
    let near = office.scene.mount("near", &["--allow-other"]);
    let reads = |mount: &Path, group, file| may(AYA, group, mount, &format!("cat {file}"));
    assert!(reads(&near, None, "notice") && !reads(&near, Some(AUDIT), "notice"));
    assert!(!reads(&near, None, "audited") && reads(&near, Some(AUDIT), "audited"));

    let apart = office.scene.path("apart");
    fs::create_dir(&apart).unwrap();
    let device = device_of(&apart);
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--kill-child", "--"]);
    command.arg(env!("CARGO_BIN_EXE_azekura"));
    command.args(["mount", "--foreground", "--allow-other", &office.volume]);
    command.arg(&apart).stdin(Stdio::null());
    command.env("AZEKURA_CONFIG_DIR", office.scene.path("config"));
    let _process = Foreground(command.spawn().unwrap(), apart.clone());
    let begun = Instant::now();
    while device_of(&apart) == device {
        assert!(begun.elapsed() < Duration::from_secs(60), "it is not there");
        std::thread::sleep(Duration::from_millis(20));
    }
    for group in [None, Some(AUDIT)] {
        for file in ["notice", "audited"] {
            assert!(!reads(&apart, group, file), "{group:?} {file}");
        }
    }
    // Root is judged by no group.
    assert_eq!(fs::read(apart.join("audited")).unwrap(), b"audited");
    office.scene.umount(&apart);
}

#[test]
fn a_call_by_a_worker_has_the_groups_of_its_process() {
    if let Some(why) = obstacle() {
        return eprintln!("{why}");
    }
    let mut office = office();
    let mount = office.scene.mount("mnt", &["--allow-other"]);
    let (source, program) = (office.scene.path("by.c"), office.scene.path("by"));
    fs::write(&source, BY_WORKER).unwrap();
    run(Command::new("cc").args(["-o", text(&program), text(&source)])).ok();
    let opens = |file: &str, before: u32, after: u32| {
        let mut command = Command::new(&program);
        command.arg(mount.join(file)).arg(AYA.to_string());
        command.args([before.to_string(), after.to_string()]);
        command.status().unwrap().code()
    };
    let denied = Some(rustix::io::Errno::ACCESS.raw_os_error());
    match opens("notice", 0, 0) {
        Some(202) => return eprintln!("skipped: this kernel gives nobody an io_uring"),
        opened => assert_eq!(opened, Some(0)),
    }
    assert_eq!(opens("audited", AUDIT, AUDIT), Some(0));
    assert_eq!(opens("audited", 0, AUDIT), Some(0));
    assert_eq!(opens("notice", AUDIT, 0), Some(0));
    // Groups that it had when the worker began, or did not have yet.
    assert_eq!(opens("audited", AUDIT, 0), denied);
    assert_eq!(opens("notice", 0, AUDIT), denied);
    assert_eq!(opens("notice", AUDIT, AUDIT), denied);
}

#[test]
fn who_may_set_an_acl_makes_no_program_run_as_its_owner() {
    if let Some(why) = obstacle() {
        return eprintln!("{why}");
    }
    let mut office = office();
    let tool = office.export().join("tool");
    fs::write(&tool, "#!/bin/sh\n").unwrap();
    fs::set_permissions(&tool, Permissions::from_mode(0o755)).unwrap();
    let list = format!("A::OWNER@:rwaxtTnNcCoy,A::{AYA}:rwaxtTnNcCdy,A::EVERYONE@:rxtncy");
    office.acl(&["set", &office.file("tool"), "--set", &list]);
    let mount = office.scene.mount("mnt", &["--allow-other"]);
    let mode = || fs::metadata(&tool).unwrap().mode() & 0o7777;
    for script in ["chmod 4777 tool", "chmod u+s tool", "chmod 6755 tool"] {
        assert!(!may(AYA, None, &mount, script), "{script}");
        assert_eq!(mode() & 0o6000, 0, "{script}");
    }
    assert!(may(AYA, None, &mount, "chmod 700 tool"));
    assert_eq!(mode() & 0o077, 0);
    assert!(may(0, None, &mount, "chmod 4755 tool"));
    assert_eq!(mode() & 0o6000, 0o4000);
}

#[test]
fn an_edit_that_cannot_be_written_down_is_not_made() {
    if let Some(why) = obstacle() {
        return eprintln!("{why}");
    }
    let office = office();
    let posix = || posix_of(&office.export());
    let before = posix();
    // Where the lines would lie is something else.
    let volumes = fs::read_to_string(office.scene.path("srv/volumes.toml")).unwrap();
    let id = volumes.split("id = \"").nth(1).unwrap();
    let id = id.split('"').next().unwrap();
    let log = office.scene.path("srv/acl").join(format!("{id}.log"));
    fs::create_dir_all(&log).unwrap();
    let (file, grant) = (office.file("audited"), format!("A::{AYA}:rwa"));
    let set = || {
        office
            .scene
            .azekura(&["acl", "set", &file, "--add", &grant])
    };
    assert!(!set().status.success(), "nothing can be written down");
    assert_eq!(posix(), before);
    fs::remove_dir(&log).unwrap();
    set().ok();
    assert_ne!(posix(), before);
    let lines = fs::read_to_string(&log).unwrap();
    assert_eq!(lines.lines().count(), 1, "{lines}");
    assert!(lines.contains(" posix->rich \"/audited\""), "{lines}");
}

/// Closed by its owner between the look-ups of two users, on their machine or on another one.
#[test]
fn what_is_closed_between_the_look_ups_of_two_users_is_open_to_neither() {
    if let Some(why) = obstacle() {
        return eprintln!("{why}");
    }
    let mut office = Office::new();
    let volume = office.volume.clone();
    office.acl(&["enable", &volume]);
    for name in ["posix", "rich"] {
        let file = office.export().join(name);
        fs::write(&file, name).unwrap();
        chown(&file, Some(OWNER), Some(OWNER)).unwrap();
    }
    let mount = office.scene.mount("m", &["--allow-other"]);
    let another = office.scene.mount("another", &["--allow-other"]);
    for (name, closing) in [
        ("posix", &mount),
        ("rich", &mount),
        ("posix", &another),
        ("rich", &another),
    ] {
        let (read, close) = (format!("cat {name}"), format!("chmod 000 {name}"));
        if name == "rich" {
            let entries = format!("A::OWNER@:rwatTcCoy,A::{AYA}:rtcy,A::{OTHER}:rtcy");
            office.acl(&["set", &office.file(name), "--set", &entries]);
        } else {
            assert!(may(OWNER, None, &mount, "chmod 644 posix"));
        }
        let ok = [AYA, OTHER].map(|user| may(user, None, &another, &read));
        assert_eq!(ok, [true; 2], "{name}");
        assert!(may(AYA, None, &mount, &read), "{name}");
        assert!(may(OWNER, None, closing, &close), "{name}");
        for mount in [&mount, &another] {
            let open = [OTHER, AYA].map(|user| may(user, None, mount, &read));
            assert_eq!(open, [false; 2], "{name} on {}", mount.display());
            assert!(may(OTHER, None, mount, &format!("stat {name}")), "{name}");
        }
    }
    for mount in [mount, another] {
        office.scene.umount(&mount);
    }
}
