//! The texts of the declarations, one for each library.
//!
//! The functions are those of the supported upstream version. With a further function, this server would accept
//! definitions that servers of that version refuse.

use super::CostRule;

/// The libraries of every environment.
pub(super) const KUBERNETES: &[&str] = &[
    OPERATORS,
    CONVERSIONS,
    STANDARD,
    TIMES,
    OPTIONALS,
    STRINGS,
    LISTS,
    SETS,
    REGEX,
    URLS,
    ADDRESSES,
    QUANTITIES,
    FORMATS,
    SEMVER,
    AUTHORIZATION,
];

/// The cost rule with this name.
pub(super) fn rule(name: &str) -> Option<CostRule> {
    Some(match name.trim() {
        "dyn" => CostRule::Dyn,
        "logic" => CostRule::Logic,
        "conditional" => CostRule::Conditional,
        "index-list" => CostRule::IndexList,
        "index-map" => CostRule::IndexMap,
        "in-list" => CostRule::InList,
        "equal" => CostRule::Equal,
        "not-equal" => CostRule::NotEqual,
        "order" => CostRule::Order,
        "add-text" => CostRule::AddText,
        "add-list" => CostRule::AddList,
        "affix" => CostRule::Affix,
        "contains" => CostRule::Contains,
        "matches" => CostRule::Matches,
        "to-bytes" => CostRule::ToBytes,
        "to-text" => CostRule::ToText,
        "quote" => CostRule::Quote,
        "format" => CostRule::Format,
        "scan" => CostRule::Scan,
        "text" => CostRule::Text,
        "read" => CostRule::Read,
        "read-twice" => CostRule::ReadTwice,
        "read-sized" => CostRule::ReadSized,
        "replace" => CostRule::Replace,
        "split" => CostRule::Split,
        "join" => CostRule::Join,
        "find" => CostRule::Find,
        "contains-ip" => CostRule::ContainsIp,
        "contains-ip-text" => CostRule::ContainsIpText,
        "contains-cidr" => CostRule::ContainsCidr,
        "contains-cidr-text" => CostRule::ContainsCidrText,
        "validate" => CostRule::Validate,
        "authorize" => CostRule::Authorize,
        "selector" => CostRule::Selector,
        "sets" => CostRule::Sets,
        "sets-twice" => CostRule::SetsTwice,
        "slice" => CostRule::Slice,
        "flatten" => CostRule::Flatten,
        "range" => CostRule::Range,
        "reverse" => CostRule::Reverse,
        "distinct" => CostRule::Distinct,
        "sort" => CostRule::Sort,
        "sort-by" => CostRule::SortBy,
        _ => return None,
    })
}

const OPERATORS: &str = "
_?_:_ (bool, A, A) -> A #conditional
_&&_ (bool, bool) -> bool #logic
_||_ (bool, bool) -> bool #logic
!_ (bool) -> bool
@not_strictly_false (bool) -> bool
-_ (int) -> int
-_ (double) -> double
_==_ (A, A) -> bool #equal
_!=_ (A, A) -> bool #not-equal
_+_ (bytes, bytes) -> bytes #add-text
_+_ (double, double) -> double
_+_ (duration, duration) -> duration
_+_ (duration, timestamp) -> timestamp
_+_ (timestamp, duration) -> timestamp
_+_ (int, int) -> int
_+_ (list(A), list(A)) -> list(A) #add-list
_+_ (string, string) -> string #add-text
_+_ (uint, uint) -> uint
_-_ (double, double) -> double
_-_ (duration, duration) -> duration
_-_ (int, int) -> int
_-_ (timestamp, duration) -> timestamp
_-_ (timestamp, timestamp) -> duration
_-_ (uint, uint) -> uint
_*_ (double, double) -> double
_*_ (int, int) -> int
_*_ (uint, uint) -> uint
_/_ (double, double) -> double
_/_ (int, int) -> int
_/_ (uint, uint) -> uint
_%_ (int, int) -> int
_%_ (uint, uint) -> uint
_<_ (bool, bool) -> bool
_<_ (int, int) -> bool
_<_ (int, double) -> bool
_<_ (int, uint) -> bool
_<_ (uint, uint) -> bool
_<_ (uint, double) -> bool
_<_ (uint, int) -> bool
_<_ (double, double) -> bool
_<_ (double, int) -> bool
_<_ (double, uint) -> bool
_<_ (string, string) -> bool #order
_<_ (bytes, bytes) -> bool #order
_<_ (timestamp, timestamp) -> bool
_<_ (duration, duration) -> bool
_<=_ (bool, bool) -> bool
_<=_ (int, int) -> bool
_<=_ (int, double) -> bool
_<=_ (int, uint) -> bool
_<=_ (uint, uint) -> bool
_<=_ (uint, double) -> bool
_<=_ (uint, int) -> bool
_<=_ (double, double) -> bool
_<=_ (double, int) -> bool
_<=_ (double, uint) -> bool
_<=_ (string, string) -> bool #order
_<=_ (bytes, bytes) -> bool #order
_<=_ (timestamp, timestamp) -> bool
_<=_ (duration, duration) -> bool
_>_ (bool, bool) -> bool
_>_ (int, int) -> bool
_>_ (int, double) -> bool
_>_ (int, uint) -> bool
_>_ (uint, uint) -> bool
_>_ (uint, double) -> bool
_>_ (uint, int) -> bool
_>_ (double, double) -> bool
_>_ (double, int) -> bool
_>_ (double, uint) -> bool
_>_ (string, string) -> bool #order
_>_ (bytes, bytes) -> bool #order
_>_ (timestamp, timestamp) -> bool
_>_ (duration, duration) -> bool
_>=_ (bool, bool) -> bool
_>=_ (int, int) -> bool
_>=_ (int, double) -> bool
_>=_ (int, uint) -> bool
_>=_ (uint, uint) -> bool
_>=_ (uint, double) -> bool
_>=_ (uint, int) -> bool
_>=_ (double, double) -> bool
_>=_ (double, int) -> bool
_>=_ (double, uint) -> bool
_>=_ (string, string) -> bool #order
_>=_ (bytes, bytes) -> bool #order
_>=_ (timestamp, timestamp) -> bool
_>=_ (duration, duration) -> bool
_[_] (list(A), int) -> A #index-list
_[_] (map(A, B), A) -> B #index-map
_[_] (optional(list(A)), int) -> optional(A)
_[_] (optional(map(A, B)), A) -> optional(B)
_[?_] (list(A), int) -> optional(A)
_[?_] (optional(list(A)), int) -> optional(A)
_[?_] (map(A, B), A) -> optional(B)
_[?_] (optional(map(A, B)), A) -> optional(B)
@in (A, list(A)) -> bool #in-list
@in (A, map(A, B)) -> bool
cel.@mapInsert (map(A, B), A, B) -> map(A, B)
cel.@mapInsert (map(A, B), map(A, B)) -> map(A, B)
";

const CONVERSIONS: &str = "
dyn (A) -> dyn #dyn
type (A) -> type(A)
bool (bool) -> bool
bool (string) -> bool
bytes (bytes) -> bytes
bytes (string) -> bytes #to-bytes
double (double) -> double
double (int) -> double
double (string) -> double
double (uint) -> double
duration (duration) -> duration
duration (int) -> duration
duration (string) -> duration
int (int) -> int
int (double) -> int
int (duration) -> int
int (string) -> int
int (timestamp) -> int
int (uint) -> int
string (string) -> string
string (bool) -> string
string (bytes) -> string #to-text
string (double) -> string
string (duration) -> string
string (int) -> string
string (timestamp) -> string
string (uint) -> string
string (net.IP) -> string
string (net.CIDR) -> string
timestamp (timestamp) -> timestamp
timestamp (int) -> timestamp
timestamp (string) -> timestamp
uint (uint) -> uint
uint (double) -> uint
uint (int) -> uint
uint (string) -> uint
";

const STANDARD: &str = "
size (bytes) -> int
size (list(A)) -> int
size (map(A, B)) -> int
size (string) -> int
.size (bytes) -> int
.size (list(A)) -> int
.size (map(A, B)) -> int
.size (string) -> int
.contains (string, string) -> bool #contains
.endsWith (string, string) -> bool #affix
.startsWith (string, string) -> bool #affix
matches (string, string) -> bool #matches
.matches (string, string) -> bool #matches
";

const TIMES: &str = "
.getFullYear (timestamp) -> int
.getFullYear (timestamp, string) -> int
.getMonth (timestamp) -> int
.getMonth (timestamp, string) -> int
.getDayOfYear (timestamp) -> int
.getDayOfYear (timestamp, string) -> int
.getDayOfMonth (timestamp) -> int
.getDayOfMonth (timestamp, string) -> int
.getDate (timestamp) -> int
.getDate (timestamp, string) -> int
.getDayOfWeek (timestamp) -> int
.getDayOfWeek (timestamp, string) -> int
.getHours (timestamp) -> int
.getHours (timestamp, string) -> int
.getHours (duration) -> int
.getMinutes (timestamp) -> int
.getMinutes (timestamp, string) -> int
.getMinutes (duration) -> int
.getSeconds (timestamp) -> int
.getSeconds (timestamp, string) -> int
.getSeconds (duration) -> int
.getMilliseconds (timestamp) -> int
.getMilliseconds (timestamp, string) -> int
.getMilliseconds (duration) -> int
";

const OPTIONALS: &str = "
optional.of (A) -> optional(A)
optional.ofNonZeroValue (A) -> optional(A)
optional.none () -> optional(A)
optional.unwrap (list(optional(A))) -> list(A)
.unwrapOpt (list(optional(A))) -> list(A)
.hasValue (optional(A)) -> bool
.value (optional(A)) -> A
.or (optional(A), optional(A)) -> optional(A)
.orValue (optional(A), A) -> A
.first (list(A)) -> optional(A)
.last (list(A)) -> optional(A)
";

const STRINGS: &str = "
.charAt (string, int) -> string
.indexOf (string, string) -> int #scan
.indexOf (string, string, int) -> int #scan
.lastIndexOf (string, string) -> int #scan
.lastIndexOf (string, string, int) -> int #scan
.lowerAscii (string) -> string #text
.upperAscii (string) -> string #text
.replace (string, string, string) -> string #replace
.replace (string, string, string, int) -> string #replace
.split (string, string) -> list(string) #split
.split (string, string, int) -> list(string) #split
.substring (string, int) -> string #text
.substring (string, int, int) -> string #text
.trim (string) -> string #text
.join (list(string)) -> string #join
.join (list(string), string) -> string #join
.format (string, list(dyn)) -> string #format
strings.quote (string) -> string #quote
";

const LISTS: &str = "
.isSorted (list(ORD)) -> bool #scan
.sum (list(int)) -> int #scan
.sum (list(uint)) -> uint #scan
.sum (list(double)) -> double #scan
.sum (list(duration)) -> duration #scan
.max (list(ORD)) -> ORD #scan
.min (list(ORD)) -> ORD #scan
.indexOf (list(A), A) -> int #scan
.lastIndexOf (list(A), A) -> int #scan
.slice (list(A), int, int) -> list(A) #slice
.flatten (list(list(A))) -> list(A) #flatten
.flatten (list(dyn), int) -> list(dyn) #flatten
.sort (list(ORD)) -> list(ORD) #sort
.@sortByAssociatedKeys (list(A), list(ORD)) -> list(A) #sort-by
lists.range (int) -> list(int) #range
.reverse (list(A)) -> list(A) #reverse
.distinct (list(A)) -> list(A) #distinct
";

const SETS: &str = "
sets.contains (list(A), list(A)) -> bool #sets
sets.equivalent (list(A), list(A)) -> bool #sets-twice
sets.intersects (list(A), list(A)) -> bool #sets
";

const REGEX: &str = "
.find (string, string) -> string #find
.findAll (string, string) -> list(string) #find
.findAll (string, string, int) -> list(string) #find
";

const URLS: &str = "
url (string) -> kubernetes.URL #read-sized
isURL (string) -> bool
.getScheme (kubernetes.URL) -> string
.getHost (kubernetes.URL) -> string
.getHostname (kubernetes.URL) -> string
.getPort (kubernetes.URL) -> string
.getEscapedPath (kubernetes.URL) -> string
.getQuery (kubernetes.URL) -> map(string, list(string))
";

const ADDRESSES: &str = "
ip (string) -> net.IP #read
isIP (string) -> bool #read
ip.isCanonical (string) -> bool #read-twice
.family (net.IP) -> int
.isUnspecified (net.IP) -> bool
.isLoopback (net.IP) -> bool
.isLinkLocalMulticast (net.IP) -> bool
.isLinkLocalUnicast (net.IP) -> bool
.isGlobalUnicast (net.IP) -> bool
cidr (string) -> net.CIDR #read
isCIDR (string) -> bool #read
.containsIP (net.CIDR, net.IP) -> bool #contains-ip
.containsIP (net.CIDR, string) -> bool #contains-ip-text
.containsCIDR (net.CIDR, net.CIDR) -> bool #contains-cidr
.containsCIDR (net.CIDR, string) -> bool #contains-cidr-text
.ip (net.CIDR) -> net.IP
.masked (net.CIDR) -> net.CIDR
.prefixLength (net.CIDR) -> int
";

const QUANTITIES: &str = "
quantity (string) -> kubernetes.Quantity #read
isQuantity (string) -> bool #read
sign (kubernetes.Quantity) -> int
.isInteger (kubernetes.Quantity) -> bool
.asInteger (kubernetes.Quantity) -> int
.asApproximateFloat (kubernetes.Quantity) -> double
.add (kubernetes.Quantity, kubernetes.Quantity) -> kubernetes.Quantity
.add (kubernetes.Quantity, int) -> kubernetes.Quantity
.sub (kubernetes.Quantity, kubernetes.Quantity) -> kubernetes.Quantity
.sub (kubernetes.Quantity, int) -> kubernetes.Quantity
.isLessThan (kubernetes.Quantity, kubernetes.Quantity) -> bool
.isGreaterThan (kubernetes.Quantity, kubernetes.Quantity) -> bool
.compareTo (kubernetes.Quantity, kubernetes.Quantity) -> int
";

const FORMATS: &str = "
format.named (string) -> optional(kubernetes.NamedFormat)
.validate (kubernetes.NamedFormat, string) -> optional(list(string)) #validate
format.dns1123Label () -> kubernetes.NamedFormat
format.dns1123Subdomain () -> kubernetes.NamedFormat
format.dns1035Label () -> kubernetes.NamedFormat
format.qualifiedName () -> kubernetes.NamedFormat
format.dns1123LabelPrefix () -> kubernetes.NamedFormat
format.dns1123SubdomainPrefix () -> kubernetes.NamedFormat
format.dns1035LabelPrefix () -> kubernetes.NamedFormat
format.labelValue () -> kubernetes.NamedFormat
format.uri () -> kubernetes.NamedFormat
format.uuid () -> kubernetes.NamedFormat
format.byte () -> kubernetes.NamedFormat
format.date () -> kubernetes.NamedFormat
format.datetime () -> kubernetes.NamedFormat
";

const SEMVER: &str = "
semver (string) -> kubernetes.Semver #read
semver (string, bool) -> kubernetes.Semver #read
isSemver (string) -> bool #read
isSemver (string, bool) -> bool #read
.isLessThan (kubernetes.Semver, kubernetes.Semver) -> bool
.isGreaterThan (kubernetes.Semver, kubernetes.Semver) -> bool
.compareTo (kubernetes.Semver, kubernetes.Semver) -> int
.major (kubernetes.Semver) -> int
.minor (kubernetes.Semver) -> int
.patch (kubernetes.Semver) -> int
";

const AUTHORIZATION: &str = "
.path (kubernetes.authorization.Authorizer, string) -> kubernetes.authorization.PathCheck
.check (kubernetes.authorization.PathCheck, string) -> kubernetes.authorization.Decision #authorize
.check (kubernetes.authorization.ResourceCheck, string) -> kubernetes.authorization.Decision #authorize
.serviceAccount (kubernetes.authorization.Authorizer, string, string) -> kubernetes.authorization.Authorizer
.group (kubernetes.authorization.Authorizer, string) -> kubernetes.authorization.GroupCheck
.resource (kubernetes.authorization.GroupCheck, string) -> kubernetes.authorization.ResourceCheck
.subresource (kubernetes.authorization.ResourceCheck, string) -> kubernetes.authorization.ResourceCheck
.namespace (kubernetes.authorization.ResourceCheck, string) -> kubernetes.authorization.ResourceCheck
.name (kubernetes.authorization.ResourceCheck, string) -> kubernetes.authorization.ResourceCheck
.fieldSelector (kubernetes.authorization.ResourceCheck, string) -> kubernetes.authorization.ResourceCheck #selector
.labelSelector (kubernetes.authorization.ResourceCheck, string) -> kubernetes.authorization.ResourceCheck #selector
.errored (kubernetes.authorization.Decision) -> bool
.error (kubernetes.authorization.Decision) -> string
.allowed (kubernetes.authorization.Decision) -> bool
.reason (kubernetes.authorization.Decision) -> string
";

/// The library of patches.
pub(super) const JSON_PATCH: &str = "
jsonpatch.escapeKey (string) -> string #read-sized
";
