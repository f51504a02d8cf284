//! Lists that are longer than a frame, and the bounds that keep the others shorter.

use crate::world::{World, is_root};
use base::limits::{CREDENTIALS_PER_REPLY_MAX, VOLUMES_MAX};
use std::collections::HashSet;
use std::fmt::Write;
use wire::message::{AdminError, AdminReply, AdminRequest, Reply, Request, VolumeKind};

/// Adds text to a state file while no server runs.
fn append(world: &World, name: &str, more: &str) {
    let path = world.data.join(format!("{name}.toml"));
    let text = std::fs::read_to_string(&path).unwrap();
    let (_, body) = text.split_once('\n').unwrap();
    // An empty list is written as one.
    let old = body.lines().filter(|line| !line.ends_with(" = []"));
    let body = old.fold(String::new(), |body, line| body + line + "\n") + more;
    let checksum = crc32c::crc32c(body.as_bytes());
    let text = format!("# azekura {name}, format 1, crc32c {checksum:08x}\n{body}");
    std::fs::write(path, text).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn twelve_thousand_credentials_are_listed_page_by_page() {
    if !is_root() {
        return;
    }
    const COUNT: usize = 12_000;
    let mut world = World::bare().await;
    drop(world.server.take());
    let mut more = String::new();
    for number in 1..COUNT {
        let label = "x".repeat(64);
        write!(
            more,
            "[[credential]]\nserial = \"{number:032x}\"\nkind = \"user:{number}\"\n\
             label = \"{label}\"\nissued = 1700000000\nrevoked = false\n"
        )
        .unwrap();
    }
    append(&world, "credentials", &more);
    world.start().await;
    let mut admin = world.client().await;
    let (mut serials, mut pages) = (HashSet::new(), 0);
    loop {
        let skip = u32::try_from(serials.len()).unwrap();
        let request = Request::Admin(AdminRequest::CredentialList { skip });
        let reply = admin.call(&request).await;
        let Reply::Admin(AdminReply::Credentials { list, more }) = reply else {
            panic!("{reply:?}")
        };
        assert!(list.len() <= CREDENTIALS_PER_REPLY_MAX);
        serials.extend(list.into_iter().map(|credential| credential.serial));
        pages += 1;
        if !more {
            break;
        }
    }
    assert_eq!((serials.len(), pages), (COUNT, 12));
}

#[tokio::test(flavor = "multi_thread")]
async fn one_volume_more_than_can_be_listed_is_refused() {
    if !is_root() {
        return;
    }
    let mut world = World::bare().await;
    drop(world.server.take());
    let mut more = String::new();
    // Directories that are gone: what is wrong with each is told, too.
    for number in 2..=VOLUMES_MAX {
        let name = format!("{number:-<63}");
        let path = format!("/nowhere/{number:-<60}");
        write!(
            more,
            "[[volume]]\nid = \"{number:08x}{number:024x}\"\nname = \"{name}\"\npath = \"{path}\"\n\
             read_only = false\n"
        )
        .unwrap();
    }
    append(&world, "volumes", &more);
    world.start().await;
    let mut admin = world.client().await;
    let create = |name: &str| {
        let tree = world.path().join(name);
        std::fs::create_dir(&tree).unwrap();
        let kind = VolumeKind::Export {
            path: tree.to_str().unwrap().to_owned(),
            read_only: false,
        };
        Request::Admin(AdminRequest::VolumeCreate {
            name: name.to_owned(),
            kind,
            dry_run: false,
        })
    };
    let last = admin.call(&create("last")).await;
    assert!(
        matches!(last, Reply::Admin(AdminReply::Volumes(_))),
        "{last:?}"
    );
    let refused = admin.call(&create("toomany")).await;
    assert!(
        matches!(
            refused,
            Reply::Admin(AdminReply::Failed {
                code: AdminError::Limit,
                ..
            })
        ),
        "{refused:?}"
    );
    let status = admin.call(&Request::Admin(AdminRequest::Status)).await;
    let Reply::Admin(AdminReply::Status(status)) = status else {
        panic!("{status:?}")
    };
    assert_eq!(status.volumes.len(), VOLUMES_MAX);
}
