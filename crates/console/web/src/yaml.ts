// All that reads or writes YAML, in one file that is loaded when it is needed.

export { readKubeconfig } from './api/kubeconfig';
export { fromYaml, toYaml } from './lib/yaml';
