// All code that reads or writes YAML, in one file that is loaded on demand.

export { readKubeconfig } from './api/kubeconfig';
export { allFromYaml, fromYaml, toYaml } from './lib/yaml';
