//! The product from outside: the built program, real sockets, real mounts.
//!
//! | file | what |
//! |---|---|
//! | `usage` | what needs no server: exit codes, errors, help, completions |
//! | `admin` | server, volumes, credentials |
//! | `copying` | `cp` and `ls` |
//! | `mounting` | mounts: stories, several clients, dying servers |
//! | `reading` | what the kernel asks for and nobody wants |
//! | `replay` | what is sent again to a server that was killed, or whose machine lost power |
//! | `kept` | files that stay open while another machine changes them |
//! | `line` | what is read while connections come back one by one |
//! | `disk` | a file system that can lose power |
//! | `disks` | images published, served, attached, changed and committed |
//! | `errors` | what is heard of lost writes |
//! | `far` | a line that counts round trips |
//! | `syncs` | what `sync` and `umount` say |
//! | `created` | files that exist only at the client when they are closed, removed or handed on |
//! | `fetched` | what is fetched before it is asked for |
//! | `locks` | locks on parts of files |
//! | `sessions` | how sessions begin and end |
//! | `rights` | who may do what on a mount |
//! | `acl` | rich ACLs |
//! | `acl_parallel` | the same on parallel volumes |
//! | `acl_append` | who may only append, on either kind of volume |
//! | `acl_callers` | callers of whom little is known, and what a right to change ACLs is not |
//! | `acl_tools` | previews and copies of rich ACLs; Samba over a mount |
//! | `silence` | what is answered without a server that is stopped |
//! | `times` | times of files |
//! | `memory` | how much of it a mount takes |
//! | `mapping` | shared mappings of files |
//! | `users` | credentials that speak for one user |
//! | `parallel` | parallel volumes: real file operations, over a server that is killed |
//! | `appends` | a file that one machine appends to while another writes it anew |
//! | `greedy` | users who write as much as they can, for the others |
//! | `demonstration` | `demo` |
//! | `stores` | stores in files and on block devices |
//! | `stores_care` | what an administrator does with them later |
//! | `missing` | servers one of whose stores is not there |
//! | `reserve` | reservations, also over a server that is killed |
//! | `booked` | exports that are reserved |
//! | `servers` | several servers of one cluster |
//! | `partition` | machines that cannot reach each other |
//! | `stories` | what the program is for, as it is told |
//! | `managers` | several managers of one cluster, on etcd |
//! | `verify` | crash runs: of file systems, of our store, and of those that must fail |
//! | `powercut` | machines whose power is cut, and what stays behind of them |
//! | `speed` | speed runs, and the machine after them |
//! | `report` | results as one page, and everything that can be verified by one command |
//! | `terminal` | what is asked on a terminal |

#[cfg(test)]
mod acl;
#[cfg(test)]
mod acl_append;
#[cfg(test)]
mod acl_callers;
#[cfg(test)]
mod acl_parallel;
#[cfg(test)]
mod acl_tools;
#[cfg(test)]
mod admin;
#[cfg(test)]
mod appends;
#[cfg(test)]
mod booked;
#[cfg(test)]
mod checks;
#[cfg(test)]
#[path = "../common/mod.rs"]
mod common;
#[cfg(test)]
mod copying;
mod created;
#[cfg(test)]
mod damage;
#[cfg(test)]
mod demonstration;
#[cfg(test)]
mod disk;
#[cfg(test)]
mod disks;
#[cfg(test)]
mod errors;
#[cfg(test)]
mod etcd;
#[cfg(test)]
mod far;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod fetched;
#[cfg(test)]
mod greedy;
#[cfg(test)]
mod holes;
#[cfg(test)]
mod kept;
#[cfg(test)]
mod launched;
#[cfg(test)]
mod line;
#[cfg(test)]
mod locks;
#[cfg(test)]
mod managers;
#[cfg(test)]
mod mapping;
#[cfg(test)]
mod memory;
#[cfg(test)]
mod missing;
#[cfg(test)]
mod mounting;
mod opened;
#[cfg(test)]
mod parallel;
#[cfg(test)]
mod partition;
#[cfg(test)]
mod powercut;
#[cfg(test)]
#[path = "../common/random.rs"]
mod random;
#[cfg(test)]
mod reading;
#[cfg(test)]
mod replay;
#[cfg(test)]
mod report;
#[cfg(test)]
mod reserve;
#[cfg(test)]
mod rights;
#[cfg(test)]
mod servers;
#[cfg(test)]
mod sessions;
#[cfg(test)]
mod silence;
#[cfg(test)]
mod speed;
#[cfg(test)]
mod split;
#[cfg(test)]
mod stores;
#[cfg(test)]
mod stores_care;
#[cfg(test)]
mod stories;
#[cfg(test)]
mod syncs;
#[cfg(test)]
mod terminal;
#[cfg(test)]
mod ticket;
#[cfg(test)]
mod times;
#[cfg(test)]
mod usage;
#[cfg(test)]
mod users;
#[cfg(test)]
mod verify;
