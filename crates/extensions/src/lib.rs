//! Custom resources: CustomResourceDefinition objects define resources that are served like any other.
//!
//! Each server follows the stored definitions in its cache, decides on their names, writes their status, and
//! contributes the resource of each to the surface ([`Extensions`]). Servers on one store do the same independently:
//! each finds the status written by others. The slower writer gets a conflict. [`contribution`] derives a resource from
//! a definition without further state. `schema` has the schemas of objects, and `keelson-outbound` calls conversion
//! webhooks.

mod approval;
mod by_group;
mod catch_up;
mod conditions;
mod contribution;
mod definition;
mod emptying;
mod extensions;
mod names;
mod regenerations;
mod schema;
mod serving;
mod status;

pub use contribution::{of_mirrored, of_program};
pub use extensions::{Extensions, InheritedDefinitions, SchemaCheck};
pub use regenerations::{RegeneratedVersion, Regeneration, Regenerations};
