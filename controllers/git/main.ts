import { runControllers } from '../source/index.ts'
import { git } from './index.ts'

await runControllers('git-controller', [git])
