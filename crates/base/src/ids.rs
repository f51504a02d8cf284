//! Identities. Each is a newtype, so that one kind is never taken for another.

use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! id128 {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub struct $name(pub [u8; 16]);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                for byte in self.0 {
                    write!(f, "{byte:02x}")?;
                }
                Ok(())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self)
            }
        }
    };
}

macro_rules! id64 {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash,
            Serialize, Deserialize,
        )]
        pub struct $name(pub u64);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0)
            }
        }
    };
}

id128! {
    /// A cluster: one certificate authority and all that it vouches for.
    ClusterId
}
id128! {
    /// One mounted client over all its connections and reconnections. Chosen at random by the
    /// client, known to nobody else.
    SessionId
}
id128! {
    /// One run of a server. It changes with every start.
    BootId
}
id128! {
    /// As long as a server says the same, nothing that it has written and not flushed is lost. It
    /// changes with every start of the server's kernel, not of the server. NFSv4.1 has the same
    /// term.
    WriteVerifier
}
id128! {
    /// A volume, whatever its name.
    VolumeId
}
id128! {
    /// A store, chosen at random when it is formatted.
    StoreId
}
id128! {
    /// An object within its store, chosen by whoever makes it.
    ObjectId
}
id128! {
    /// A server, chosen at random when its data directory is made.
    ServerId
}
id128! {
    /// A ticket: that of a reservation is the same at all servers; one that was split from another
    /// has a number that whoever split it has chosen, of meaning only below that one.
    TicketId
}
id64! {
    /// A request within its session; never used twice.
    RequestId
}
id64! {
    /// An open file within its session, chosen by the client so that an open need not be awaited.
    OpenId
}
id64! {
    /// Who holds a lock within its session: a process's file table, or an open file description.
    LockOwner
}
