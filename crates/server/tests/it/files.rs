//! File operations, as a client sees them.

use crate::client::{Client, Mode, name};
use crate::world::{World, is_root, new_session};
use base::{FileKind, FsError, Handle, OpenId};
use bytes::Bytes;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use wire::message::{
    Access, ConnectionRole, FileRef, RenameMode, Step, StepReply, Target, WriteAt,
};

pub(crate) fn at(handle: &Handle) -> Target {
    Target::Handle(handle.clone())
}

pub(crate) fn file(handle: &Handle, open: Option<u64>) -> FileRef {
    FileRef {
        target: at(handle),
        open: open.map(OpenId),
    }
}

pub(crate) fn create(parent: &Handle, text: &str, open: Option<u64>) -> Step {
    Step::Create {
        parent: at(parent),
        name: name(text),
        mode: 0o644,
        umask: 0o022,
        exclusive: true,
        open: open.map(|open| (OpenId(open), Access::ReadWrite, false)),
    }
}

pub(crate) fn write(handle: &Handle, open: Option<u64>, offset: u64, bytes: usize) -> Step {
    let bytes = u32::try_from(bytes).unwrap();
    Step::Write {
        file: file(handle, open),
        at: WriteAt::Offset(offset),
        bytes,
    }
}

pub(crate) fn mkdir(parent: &Handle, text: &str) -> Step {
    let (parent, name) = (at(parent), name(text));
    Step::MakeDirectory {
        parent,
        name,
        mode: 0o755,
        umask: 0,
    }
}

pub(crate) fn remove(parent: &Handle, text: &str) -> Step {
    Step::Remove {
        parent: at(parent),
        name: name(text),
        file: None,
    }
}

pub(crate) fn link(target: &Handle, parent: &Handle, text: &str) -> Step {
    Step::Link {
        target: at(target),
        parent: at(parent),
        name: name(text),
    }
}

pub(crate) fn rename(parent: &Handle, from: &str, to: &str, mode: RenameMode) -> Step {
    let (parent, to_parent) = (at(parent), at(parent));
    Step::Rename {
        parent,
        name: name(from),
        to_parent,
        to_name: name(to),
        mode,
    }
}

pub(crate) fn look(parent: Target, text: &str, inline_bytes_max: u32) -> Step {
    Step::Lookup {
        parent,
        name: name(text),
        inline_bytes_max,
    }
}

pub(crate) fn made(result: &Result<StepReply, FsError>) -> Handle {
    match result {
        Ok(StepReply::Created { entry, .. }) => entry.handle.clone(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tree_is_attached_looked_up_read_and_listed_over_tls_and_without() {
    if !is_root() {
        return;
    }
    let world = World::new().await;
    std::fs::create_dir(world.tree.join("plans")).unwrap();
    let contents: Vec<u8> = (0..300_000u32).map(|n| (n % 251) as u8).collect();
    std::fs::write(world.tree.join("plans/q3"), &contents).unwrap();
    for mode in [Mode::Tls, Mode::Plain] {
        let mut client = world
            .client_as(&world.admin, new_session(), ConnectionRole::Main, mode)
            .await;
        let root = client.attach().await;
        assert_eq!(root.attributes.kind, FileKind::Directory);
        // A walk, attributes and the first data in one request.
        let file = FileRef {
            target: Target::Result(1),
            open: None,
        };
        let target = Target::Result(0);
        let steps = vec![
            look(at(&root.handle), "plans", 0),
            look(Target::Result(0), "q3", 0),
            Step::Read {
                file,
                offset: 1000,
                bytes: 1 << 20,
            },
            Step::ReadDirectory {
                target,
                cookie: 0,
                entries_max: 100,
            },
        ];
        let (results, payload) = client.steps(steps).await;
        let [
            Ok(_),
            Ok(StepReply::Found {
                entry: Some(entry), ..
            }),
            Ok(data),
            Ok(listing),
        ] = &results[..]
        else {
            panic!("{results:?}");
        };
        assert_eq!(entry.attributes.size, 300_000);
        assert_eq!(
            *data,
            StepReply::Data {
                bytes: 299_000,
                end_of_file: true
            }
        );
        assert_eq!(payload[..], contents[1000..]);
        let StepReply::Directory {
            entries, end: true, ..
        } = listing
        else {
            panic!("{listing:?}")
        };
        assert_eq!(entries.len(), 1);
        assert_eq!(entries[0].entry.as_ref().unwrap().handle, entry.handle);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_written_is_read_and_lies_on_the_servers_disk() {
    if !is_root() {
        return;
    }
    let world = World::new().await;
    let mut client = world.client().await;
    let root = client.attach().await.handle;
    let new = || FileRef {
        target: Target::Result(0),
        open: Some(OpenId(1)),
    };
    let steps = vec![
        create(&root, "a", Some(1)),
        Step::Write {
            file: new(),
            at: WriteAt::Offset(0),
            bytes: 5,
        },
        Step::Write {
            file: new(),
            at: WriteAt::End,
            bytes: 6,
        },
        Step::Commit {
            file: new(),
            data_only: false,
        },
    ];
    let (results, _) = client
        .steps_with(steps, Bytes::from_static(b"hello world"))
        .await;
    let a = made(&results[0]);
    let Ok(StepReply::Written {
        offset: 5,
        bytes: 6,
        attributes,
    }) = &results[2]
    else {
        panic!("{results:?}")
    };
    assert_eq!(attributes.size, 11);
    assert!(results[3].is_ok());
    assert_eq!(std::fs::read(world.tree.join("a")).unwrap(), b"hello world");
    let metadata = std::fs::metadata(world.tree.join("a")).unwrap();
    assert_eq!(metadata.permissions().mode() & 0o777, 0o644);
    let step = Step::Read {
        file: file(&a, Some(1)),
        offset: 6,
        bytes: 3,
    };
    let (results, payload) = client.steps(vec![step]).await;
    assert_eq!(
        results,
        [Ok(StepReply::Data {
            bytes: 3,
            end_of_file: false
        })]
    );
    assert_eq!(payload[..], *b"wor");
    assert_eq!(
        client.step(Step::Close { open: OpenId(1) }).await,
        Ok(StepReply::Done)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn names_are_made_linked_and_renamed() {
    if !is_root() {
        return;
    }
    let world = World::new().await;
    let mut client = world.client().await;
    let root = client.attach().await.handle;
    let directory = made(&client.step(mkdir(&root, "d")).await);
    let a = made(&client.step(create(&directory, "a", None)).await);
    assert_eq!(made(&client.step(link(&a, &root, "b")).await), a);
    let (parent, link_target) = (at(&root), b"d/a".to_vec());
    let symlink = Step::MakeSymlink {
        parent,
        name: name("s"),
        link_target,
    };
    let s = made(&client.step(symlink).await);
    let target = client.step(Step::ReadLink { target: at(&s) }).await;
    assert_eq!(target, Ok(StepReply::LinkTarget(b"d/a".to_vec())));
    let fifo = Step::MakeNode {
        parent: at(&root),
        name: name("p"),
        kind: FileKind::Fifo,
        mode: 0o600,
        umask: 0,
        device: 0,
    };
    assert!(client.step(fifo).await.is_ok());

    let taken = client
        .step(rename(&root, "b", "s", RenameMode::NoReplace))
        .await;
    assert_eq!(taken, Err(FsError::Exists));
    let moved = client
        .step(rename(&root, "b", "c", RenameMode::Replace))
        .await;
    let Ok(StepReply::Renamed { entry, .. }) = moved else {
        panic!("{moved:?}")
    };
    assert_eq!(entry.handle, a);
    let swapped = client
        .step(rename(&root, "c", "s", RenameMode::Exchange))
        .await;
    assert!(swapped.is_ok());
    assert_eq!(client.lookup(&root, "s").await.unwrap().handle, a);
    assert_eq!(client.lookup(&root, "c").await.unwrap().handle, s);
}

#[tokio::test(flavor = "multi_thread")]
async fn names_are_removed() {
    if !is_root() {
        return;
    }
    let world = World::new().await;
    let mut client = world.client().await;
    let root = client.attach().await.handle;
    let directory = made(&client.step(mkdir(&root, "d")).await);
    let a = made(&client.step(create(&directory, "a", None)).await);
    client.step(link(&a, &root, "b")).await.unwrap();
    assert_eq!(
        client.step(remove(&root, "d")).await,
        Err(FsError::IsDirectory)
    );
    let removed = client.step(remove(&root, "b")).await;
    let Ok(StepReply::Removed {
        entry: Some(left), ..
    }) = removed
    else {
        panic!("{removed:?}")
    };
    assert_eq!(left.attributes.links, 1);
    let rmdir = Step::RemoveDirectory {
        parent: at(&root),
        name: name("d"),
    };
    assert_eq!(client.step(rmdir.clone()).await, Err(FsError::NotEmpty));
    let removed = client.step(remove(&directory, "a")).await;
    let Ok(StepReply::Removed {
        entry: Some(gone), ..
    }) = removed
    else {
        panic!("{removed:?}")
    };
    assert_eq!(
        (gone.attributes.links, gone.lease),
        (0, wire::message::Lease::None)
    );
    assert!(client.step(rmdir).await.is_ok());
    assert!(client.lookup(&root, "d").await.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removal_that_says_whose_name_it_means_takes_no_other() {
    if !is_root() {
        return;
    }
    let world = World::new().await;
    let mut client = world.client().await;
    let root = client.attach().await.handle;
    let old = made(&client.step(create(&root, "a", None)).await);
    let removal = Step::Remove {
        parent: at(&root),
        name: name("a"),
        file: Some(old.clone()),
    };
    client.step(remove(&root, "a")).await.unwrap();
    assert_eq!(client.step(removal.clone()).await, Err(FsError::NotFound));
    let new = made(&client.step(create(&root, "a", None)).await);
    assert_ne!(old, new);
    assert_eq!(client.step(removal).await, Err(FsError::NotFound));
    assert_eq!(client.lookup(&root, "a").await.unwrap().handle, new);
    let removal = Step::Remove {
        parent: at(&root),
        name: name("a"),
        file: Some(new),
    };
    assert!(client.step(removal).await.is_ok());
    assert!(client.lookup(&root, "a").await.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn small_files_come_with_their_look_up_and_in_one_fetch() {
    if !is_root() {
        return;
    }
    let world = World::new().await;
    for n in 0..5 {
        std::fs::write(
            world.tree.join(format!("f{n}")),
            vec![b'0' + n; 10 + n as usize],
        )
        .unwrap();
    }
    std::fs::write(world.tree.join("secret"), "for root").unwrap();
    std::fs::set_permissions(world.tree.join("secret"), PermissionsExt::from_mode(0o600)).unwrap();
    std::fs::set_permissions(&world.tree, PermissionsExt::from_mode(0o755)).unwrap();
    std::fs::set_permissions(world.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let mut client = world.client().await;
    let root = client.attach().await.handle;
    client.who = base::Principal::alone(1234, 1234);
    let lookup = |text: &str| Step::Lookup {
        parent: at(&root),
        name: name(text),
        inline_bytes_max: 12,
    };
    let (results, payload) = client
        .steps(vec![lookup("f1"), lookup("f4"), lookup("secret")])
        .await;
    let inline: Vec<_> = results
        .iter()
        .map(|r| match r {
            Ok(StepReply::Found {
                inline_bytes,
                entry: Some(_),
                ..
            }) => *inline_bytes,
            other => panic!("{other:?}"),
        })
        .collect();
    // f4 is larger than asked for; the other one may not be read by this caller.
    assert_eq!(inline, [Some(11), None, None]);
    assert_eq!(payload[..], *b"11111111111");

    let mut handles = Vec::new();
    for text in ["f0", "secret", "f3"] {
        handles.push(client.lookup(&root, text).await.unwrap().handle);
    }
    let (results, payload) = client
        .steps(vec![Step::Fetch {
            handles,
            bytes_max: 4096,
        }])
        .await;
    let Ok(StepReply::Contents { files }) = &results[0] else {
        panic!("{results:?}")
    };
    let sizes: Vec<_> = files.iter().map(|f| f.as_ref().map(|f| f.0)).collect();
    assert_eq!(sizes, [Some(10), None, Some(13)]);
    assert_eq!(payload[..], *b"00000000003333333333333");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_directory_is_listed_once_in_pages_of_bounded_size() {
    if !is_root() {
        return;
    }
    let world = World::new().await;
    let long = "x".repeat(240);
    for n in 0..3000 {
        std::fs::write(world.tree.join(format!("{long}{n}")), "").unwrap();
    }
    let mut client = world.client().await;
    let root = client.attach().await.handle;
    let mut seen = std::collections::BTreeSet::new();
    let mut cookie = 0;
    for page in 0.. {
        assert!(page < 20);
        let list = Step::ReadDirectory {
            target: at(&root),
            cookie,
            entries_max: 4096,
        };
        let Ok(StepReply::Directory { entries, end, .. }) = client.step(list).await else {
            panic!()
        };
        for entry in &entries {
            assert!(seen.insert(entry.name.to_string()), "{} twice", entry.name);
            assert!(entry.entry.is_some());
        }
        if end {
            break;
        }
        cookie = entries.last().unwrap().cookie;
    }
    assert_eq!(seen.len(), 3000);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_server_judges_for_the_caller() {
    if !is_root() {
        return;
    }
    let world = World::new().await;
    std::fs::set_permissions(&world.tree, PermissionsExt::from_mode(0o1777)).unwrap();
    std::fs::set_permissions(world.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let mut client = world.client().await;
    let root = client.attach().await.handle;
    client.who = base::Principal::alone(1001, 1001);
    let a = made(&client.step(create(&root, "a", Some(1))).await);
    let metadata = std::fs::metadata(world.tree.join("a")).unwrap();
    assert_eq!((metadata.uid(), metadata.gid()), (1001, 1001));
    client.who = base::Principal::alone(1002, 1002);
    let open = |access| Step::Open {
        target: at(&a),
        open: OpenId(2),
        access,
        truncate: false,
    };
    assert!(client.step(open(Access::Read)).await.is_ok());
    assert_eq!(
        client.step(open(Access::Write)).await,
        Err(FsError::AccessDenied)
    );
    let remove = Step::Remove {
        parent: at(&root),
        name: name("a"),
        file: None,
    };
    assert_eq!(
        client.step(remove).await,
        Err(FsError::NotPermitted),
        "the directory is sticky"
    );
    // Without an open each step is judged by itself.
    let (results, _) = client
        .steps_with(vec![write(&a, None, 0, 1)], Bytes::from_static(b"x"))
        .await;
    assert_eq!(results, [Err(FsError::AccessDenied)]);
    // Another user's number for an open is not a way around.
    let (results, _) = client
        .steps_with(vec![write(&a, Some(2), 0, 1)], Bytes::from_static(b"x"))
        .await;
    assert_eq!(results, [Err(FsError::BadOpen)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_step_ends_the_request_and_later_results_mean_nothing() {
    if !is_root() {
        return;
    }
    let world = World::new().await;
    let mut client = world.client().await;
    let root = client.attach().await.handle;
    let (results, _) = client
        .steps(vec![
            Step::Lookup {
                parent: at(&root),
                name: name("none"),
                inline_bytes_max: 0,
            },
            Step::Attributes {
                target: Target::Result(0),
            },
            Step::Attributes { target: at(&root) },
        ])
        .await;
    assert_eq!(results.len(), 2);
    assert!(matches!(
        results[0],
        Ok(StepReply::Found { entry: None, .. })
    ));
    assert_eq!(results[1], Err(FsError::Invalid));
    for bad in [Target::Result(1), Target::Result(200)] {
        let (results, _) = client.steps(vec![Step::Attributes { target: bad }]).await;
        assert_eq!(results, [Err(FsError::Invalid)]);
    }
    let forged = Handle::new(&[7; 40]).unwrap();
    assert_eq!(
        client
            .step(Step::Attributes {
                target: at(&forged)
            })
            .await,
        Err(FsError::Stale)
    );
    let _: &Client = &client;
}
