//! Who gets in, and for whom he may speak.

use crate::client::{Client, Ended, Mode, expect, frame, hello, open_line};
use crate::files::{at, create, made};
use crate::world::{World, is_root, new_session};
use base::{Principal, SessionId};
use std::os::unix::fs::PermissionsExt;
use wire::frame::FrameKind;
use wire::identity::{Enrolment, enrol_config, server_name};
use wire::message::{
    AdminError, AdminReply, AdminRequest, ConnectionRole, CredentialKind, Farewell, Refusal, Reply,
    Request, Step, VolumeKind, Welcome,
};

#[tokio::test(flavor = "multi_thread")]
async fn without_a_valid_credential_nothing_is_answered() {
    if !is_root() {
        return;
    }
    let world = World::new().await;
    let address = world.server().address();
    let foreign = world.foreign_credential();
    for mode in [Mode::Tls, Mode::Plain] {
        let session = new_session();
        let outcome = Client::connect(address, &foreign, session, ConnectionRole::Main, mode).await;
        match (mode, outcome) {
            // The authority is another one, so under TLS the client is the first to leave.
            (Mode::Tls, Err(Ended::Link(_))) => {}
            (Mode::Plain, Ok(mut client)) => {
                let id = client.send(&Request::Ping).await;
                let Err(Ended::Farewell(farewell)) = client.reply(id).await else {
                    panic!()
                };
                assert_eq!(farewell, Farewell::Unauthenticated);
            }
            (_, other) => panic!("{:?}", other.err()),
        }
    }
    // TLS without any certificate.
    let config = enrol_config(world.server().fingerprint()).unwrap();
    let tls = Some((config, server_name()));
    let time = std::time::Duration::from_secs(5);
    let mut connection = wire::link::connect(address, tls, time).await.unwrap();
    let greeting = hello(new_session(), ConnectionRole::Main);
    connection
        .writer
        .write(frame(FrameKind::Hello, 0, &greeting))
        .await
        .unwrap();
    connection.writer.flush().await.unwrap();
    let outcome = expect::<Welcome>(&mut connection, FrameKind::Welcome).await;
    assert!(
        matches!(outcome, Err(Ended::Farewell(Farewell::Unauthenticated))),
        "{outcome:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn on_a_plain_line_requests_before_the_proof_end_the_connection() {
    if !is_root() {
        return;
    }
    let world = World::new().await;
    let address = world.server().address();
    let mut connection = open_line(address, None, Mode::Plain).await.unwrap();
    let greeting = hello(new_session(), ConnectionRole::Main);
    connection
        .writer
        .write(frame(FrameKind::Hello, 0, &greeting))
        .await
        .unwrap();
    connection
        .writer
        .write(frame(FrameKind::Request, 1, &Request::Ping))
        .await
        .unwrap();
    connection.writer.flush().await.unwrap();
    let welcome: Welcome = expect(&mut connection, FrameKind::Welcome).await.unwrap();
    assert!(welcome.challenge.is_some());
    let outcome = expect::<Reply>(&mut connection, FrameKind::Reply).await;
    assert!(
        matches!(outcome, Err(Ended::Farewell(Farewell::Protocol))),
        "{outcome:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_enrols_once_with_a_join_string() {
    if !is_root() {
        return;
    }
    let world = World::new().await;
    let address = world.server().address();
    let join = world.join_string(CredentialKind::Host).await;
    let enrolment = Enrolment::new().unwrap();
    let mut wrong = join.clone();
    wrong.secret[0] ^= 1;
    let (reply, _) = Client::enrol(address, &wrong, &enrolment).await;
    assert_eq!(reply, Reply::Refused(Refusal::JoinString));
    let (reply, chain) = Client::enrol(address, &join, &enrolment).await;
    let Reply::Enrolled { certificate } = reply else {
        panic!("{reply:?}")
    };
    let credential = enrolment
        .complete(&certificate, &chain, join.fingerprint)
        .unwrap();
    let (reply, _) = Client::enrol(address, &join, &Enrolment::new().unwrap()).await;
    assert_eq!(reply, Reply::Refused(Refusal::JoinString), "a second time");

    let session = new_session();
    let mut client = world
        .client_as(&credential, session, ConnectionRole::Main, Mode::Tls)
        .await;
    client.attach().await;
    let reply = client
        .call(&Request::Admin(AdminRequest::CredentialList { skip: 0 }))
        .await;
    assert_eq!(
        reply,
        Reply::Refused(Refusal::Forbidden),
        "a machine administers nothing"
    );
    let reply = client.call(&Request::Admin(AdminRequest::Status)).await;
    let Reply::Admin(AdminReply::Status(status)) = reply else {
        panic!("{reply:?}")
    };
    assert!(
        status.sessions.is_empty(),
        "only administrators see sessions"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_enrolment_connection_is_for_nothing_else() {
    if !is_root() {
        return;
    }
    let world = World::new().await;
    for mode in [Mode::Tls, Mode::Plain] {
        let address = world.server().address();
        let mut connection = open_line(address, Some(&world.admin), mode).await.unwrap();
        let greeting = hello(SessionId([0; 16]), ConnectionRole::Enrolment);
        connection
            .writer
            .write(frame(FrameKind::Hello, 0, &greeting))
            .await
            .unwrap();
        let request = Request::Admin(AdminRequest::CredentialList { skip: 0 });
        connection
            .writer
            .write(frame(FrameKind::Request, 1, &request))
            .await
            .unwrap();
        connection.writer.flush().await.unwrap();
        let _: Welcome = expect(&mut connection, FrameKind::Welcome).await.unwrap();
        let outcome = expect::<Reply>(&mut connection, FrameKind::Reply).await;
        assert!(matches!(
            outcome,
            Err(Ended::Farewell(Farewell::Unauthenticated))
        ));
    }
    // A join secret that crossed the line in the clear is not taken.
    let join = world.join_string(CredentialKind::Admin).await;
    let mut connection = open_line(world.server().address(), None, Mode::Plain)
        .await
        .unwrap();
    let greeting = hello(SessionId([0; 16]), ConnectionRole::Enrolment);
    connection
        .writer
        .write(frame(FrameKind::Hello, 0, &greeting))
        .await
        .unwrap();
    let request = Request::Enrol {
        secret: join.secret,
        signing_request: Enrolment::new().unwrap().signing_request().to_vec(),
        label: "x".to_owned(),
    };
    connection
        .writer
        .write(frame(FrameKind::Request, 1, &request))
        .await
        .unwrap();
    connection.writer.flush().await.unwrap();
    let _: Welcome = expect(&mut connection, FrameKind::Welcome).await.unwrap();
    let reply: Reply = expect(&mut connection, FrameKind::Reply).await.unwrap();
    assert_eq!(reply, Reply::Refused(Refusal::Forbidden));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_speaks_for_himself_with_the_groups_that_the_server_knows() {
    if !is_root() {
        return;
    }
    let world = World::new().await;
    std::fs::set_permissions(&world.tree, PermissionsExt::from_mode(0o777)).unwrap();
    std::fs::set_permissions(world.path(), PermissionsExt::from_mode(0o755)).unwrap();
    std::fs::write(world.tree.join("for-group-0"), "x").unwrap();
    let path = world.tree.join("for-group-0");
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o640)).unwrap();
    let uid = 3_999_999_999;
    let credential = world.enrol(CredentialKind::User { uid }).await;
    let role = ConnectionRole::Main;
    let mut client = world
        .client_as(&credential, new_session(), role, Mode::Tls)
        .await;
    for foreign in [Principal::root(), Principal::alone(1000, 1000)] {
        client.who = foreign;
        let request = client.compound(vec![Step::Attach {
            volume: "lab".to_owned(),
        }]);
        assert_eq!(
            client.call(&request).await,
            Reply::Refused(Refusal::ForeignUser)
        );
    }
    client.who = Principal::new(uid, 0, vec![0]);
    let root = client.attach().await.handle;
    let file = client.lookup(&root, "for-group-0").await.unwrap().handle;
    let read = Step::Read {
        file: wire::message::FileRef {
            target: at(&file),
            open: None,
        },
        offset: 0,
        bytes: 1,
    };
    assert_eq!(client.step(read).await, Err(base::FsError::AccessDenied));
    made(&client.step(create(&root, "mine", None)).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_belongs_to_its_credential() {
    if !is_root() {
        return;
    }
    let world = World::new().await;
    let host = world.enrol(CredentialKind::Host).await;
    let session = new_session();
    let _client = world
        .client_as(&host, session, ConnectionRole::Main, Mode::Tls)
        .await;
    let other = world.enrol(CredentialKind::Host).await;
    let address = world.server().address();
    let outcome = Client::connect(address, &other, session, ConnectionRole::Bulk, Mode::Tls).await;
    assert!(matches!(
        outcome.err(),
        Some(Ended::Farewell(Farewell::ForeignSession))
    ));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_credential_is_out_at_once_and_stays_out() {
    if !is_root() {
        return;
    }
    let mut world = World::new().await;
    let host = world.enrol(CredentialKind::Host).await;
    let role = ConnectionRole::Main;
    let mut client = world.client_as(&host, new_session(), role, Mode::Tls).await;
    client.attach().await;
    let mut admin = world.client().await;
    let reply = admin
        .call(&Request::Admin(AdminRequest::CredentialList { skip: 0 }))
        .await;
    let Reply::Admin(AdminReply::Credentials { list, .. }) = reply else {
        panic!("{reply:?}")
    };
    let serial = list
        .iter()
        .find(|c| c.kind == CredentialKind::Host)
        .unwrap()
        .serial
        .clone();
    let revoke = |dry_run| {
        Request::Admin(AdminRequest::CredentialRevoke {
            serial: serial.clone(),
            dry_run,
        })
    };
    assert_eq!(
        admin.call(&revoke(true)).await,
        Reply::Admin(AdminReply::Done)
    );
    assert_eq!(
        client.call(&Request::Ping).await,
        Reply::Done,
        "a trial changes nothing"
    );
    assert_eq!(
        admin.call(&revoke(false)).await,
        Reply::Admin(AdminReply::Done)
    );
    let outcome = client.ended().await;
    assert!(
        matches!(outcome, Ended::Farewell(Farewell::Unauthenticated)),
        "{outcome:?}"
    );
    for restart in [false, true] {
        if restart {
            world.restart().await;
        }
        let address = world.server().address();
        let outcome = Client::connect(address, &host, new_session(), role, Mode::Tls).await;
        assert!(matches!(
            outcome.err(),
            Some(Ended::Farewell(Farewell::Unauthenticated))
        ));
    }
}

fn path(path: &std::path::Path) -> String {
    path.to_str().unwrap().to_owned()
}

/// Asks for a volume; its name, or why not.
async fn make(
    admin: &mut Client,
    text: &str,
    path: String,
    trial: bool,
) -> Result<String, AdminError> {
    let (name, kind) = (
        text.to_owned(),
        VolumeKind::Export {
            path,
            read_only: false,
        },
    );
    let request = AdminRequest::VolumeCreate {
        name,
        kind,
        dry_run: trial,
    };
    match admin.call(&Request::Admin(request)).await {
        Reply::Admin(AdminReply::Failed { code, message }) => {
            assert!(message.len() > 10, "{message}");
            Err(code)
        }
        Reply::Admin(AdminReply::Volumes(list)) => Ok(list[0].name.clone()),
        other => panic!("{other:?}"),
    }
}

async fn delete(admin: &mut Client, text: &str) -> Result<(), AdminError> {
    let request = AdminRequest::VolumeDelete {
        name: text.to_owned(),
        dry_run: false,
    };
    match admin.call(&Request::Admin(request)).await {
        Reply::Admin(AdminReply::Failed { code, .. }) => Err(code),
        Reply::Admin(AdminReply::Done) => Ok(()),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn volumes_are_checked_before_they_are_made() {
    if !is_root() {
        return;
    }
    let world = World::new().await;
    let mut admin = world.client().await;
    let tree = path(&world.tree);
    let file = world.path().join("file");
    std::fs::write(&file, "").unwrap();
    std::os::unix::fs::symlink(&world.data, world.path().join("link")).unwrap();
    let invalid = Err(AdminError::Invalid);
    for name in [
        "",
        "Lab",
        "-x",
        ".x",
        "a/b",
        "a b",
        &"x".repeat(64),
        "..",
        "é",
    ] {
        assert_eq!(
            make(&mut admin, name, tree.clone(), false).await,
            invalid,
            "{name:?}"
        );
    }
    assert_eq!(
        make(&mut admin, "lab", tree.clone(), false).await,
        Err(AdminError::Exists)
    );
    let bad = [
        "relative".to_owned(),
        format!("{tree}/none"),
        path(&file),
        path(&world.data),
        path(&world.data.join("server")),
        path(&world.path().join("link")),
        path(world.path()),
        "/".to_owned(),
        "/proc".to_owned(),
    ];
    for bad in bad {
        assert_eq!(
            make(&mut admin, "second", bad.clone(), false).await,
            invalid,
            "{bad}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn volumes_are_made_and_deleted_but_not_under_somebody() {
    if !is_root() {
        return;
    }
    let world = World::new().await;
    let mut admin = world.client().await;
    let tree = world.path().join("second");
    std::fs::create_dir(&tree).unwrap();
    let tree = path(&tree);
    for trial in [true, false] {
        let outcome = make(&mut admin, "second", tree.clone(), trial).await;
        assert_eq!(outcome, Ok("second".to_owned()), "a trial makes nothing");
    }
    let mut user = world.client().await;
    user.attach().await;
    assert_eq!(delete(&mut admin, "lab").await, Err(AdminError::InUse));
    assert_eq!(delete(&mut admin, "second").await, Ok(()));
    assert_eq!(
        delete(&mut admin, "second").await,
        Err(AdminError::NotFound)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_only_volume_refuses_every_change() {
    if !is_root() {
        return;
    }
    let world = World::bare().await;
    std::fs::write(world.tree.join("a"), "x").unwrap();
    let mut admin = world.client().await;
    let path = world.tree.to_str().unwrap().to_owned();
    let kind = VolumeKind::Export {
        path,
        read_only: true,
    };
    let request = AdminRequest::VolumeCreate {
        name: "lab".to_owned(),
        kind,
        dry_run: false,
    };
    admin.call(&Request::Admin(request)).await;
    let root = admin.attach().await.handle;
    let a = admin.lookup(&root, "a").await.unwrap().handle;
    let change = base::AttributeChange {
        mode: Some(0),
        ..Default::default()
    };
    let open = Step::Open {
        target: at(&a),
        open: base::OpenId(1),
        access: wire::message::Access::ReadWrite,
        truncate: false,
    };
    for step in [
        create(&root, "b", None),
        Step::Remove {
            parent: at(&root),
            name: crate::client::name("a"),
            file: None,
        },
        Step::SetAttributes {
            target: at(&a),
            change,
            open: None,
        },
        open,
    ] {
        assert_eq!(admin.step(step).await, Err(base::FsError::ReadOnly));
    }
    let (results, _) = admin
        .steps_with(
            vec![crate::files::write(&a, None, 0, 1)],
            bytes::Bytes::from_static(b"y"),
        )
        .await;
    assert_eq!(results, [Err(base::FsError::ReadOnly)]);
    assert_eq!(std::fs::read(world.tree.join("a")).unwrap(), b"x");
}
