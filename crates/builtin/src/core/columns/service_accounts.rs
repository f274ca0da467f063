//! The columns of service accounts.
//!
//! Tables do not show the names of their secrets.

use keelson_tables::column::{AGE, NAME};
use keelson_tables::printer::Printer;

pub(super) const SERVICE_ACCOUNT: Printer = Printer::new(&[NAME, AGE], |of| vec![of.name(), of.age()]);
