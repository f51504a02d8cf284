//! Repositories in buckets: what the environment says about S3.
//!
//! The variables are those of other programs for S3, so that whoever can use one of these can use
//! this one: `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_SESSION_TOKEN`, `AWS_REGION`,
//! `AWS_ENDPOINT_URL` and so on. Without any credentials nobody is asked: a machine that is none of
//! Amazon's would wait for minutes for one that gives them.

use crate::errors::{Code, Failure, Result};
use crate::output;
use ::disk::{Bucket, BucketOptions, HttpOptions};
use tokio::runtime::Runtime;

/// Any of these says where credentials come from, or that there are none.
const CREDENTIALS: [&str; 6] = [
    "AWS_ACCESS_KEY_ID",
    "AWS_SKIP_SIGNATURE",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_METADATA_ENDPOINT",
];

/// The bucket at an address.
///
/// # Errors
/// [`Code::DiskRepository`] if it cannot be one, or if there are no credentials.
pub(super) fn open(url: &str, http: HttpOptions, runtime: &Runtime) -> Result<Bucket> {
    let variables = std::env::vars_os().filter_map(|(name, value)| {
        let name = name.into_string().ok()?;
        let value = value.into_string().ok()?;
        (name.starts_with("AWS_") && !value.is_empty()).then_some((name, value))
    });
    let settings: Vec<_> = variables.collect();
    let is_told = |name: &&str| settings.iter().any(|(known, _)| known == name);
    if !CREDENTIALS.iter().any(is_told) {
        let message = format!("{}: there are no credentials", output::plain(url));
        return Err(Failure::new(Code::DiskRepository, message).hint(
            "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_SKIP_SIGNATURE=true for a \
             bucket that everybody may read",
        ));
    }
    let options = BucketOptions { settings, http };
    let bucket = Bucket::new(url, &options, runtime.handle().clone());
    bucket.map_err(|error| {
        let message = output::plain(&error.to_string());
        Failure::new(Code::DiskRepository, message)
            .hint("s3://BUCKET/PREFIX, and AWS_ENDPOINT_URL for a server that is not Amazon's")
    })
}
