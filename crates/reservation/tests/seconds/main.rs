//! Calendar and ledger beside arrays with one entry for each second.

mod calendar;
mod ledger;
mod model;
