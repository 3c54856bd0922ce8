"""The networks as PyTorch has them: torchvision's, its ResNet class with other numbers, and what it lacks.

torchvision has no squeeze-and-excitation ResNets: the block below is its bottleneck with a gate after the last batch
norm, under timm's parameter names (long_timm.py holds it against timm itself). SAME padding is TensorFlow's: the padding
follows from the extent, the odd pixel comes below and on the right.
"""
import torch
import torchvision
from torch import nn
from torch.nn import functional as F
from torchvision.models.resnet import BasicBlock, Bottleneck

# name: block, blocks of each stage, groups, width of a group in the first stage, hidden units of squeeze-and-excitation
NETWORKS = {
    "resnet18": (BasicBlock, (2, 2, 2, 2), 1, 64, None),
    "resnet34": (BasicBlock, (3, 4, 6, 3), 1, 64, None),
    "resnet50": (Bottleneck, (3, 4, 6, 3), 1, 64, None),
    "resnet101": (Bottleneck, (3, 4, 23, 3), 1, 64, None),
    "resnet152": (Bottleneck, (3, 8, 36, 3), 1, 64, None),
    "resnext50-32x4d": (Bottleneck, (3, 4, 6, 3), 32, 4, None),
    "resnext101-32x4d": (Bottleneck, (3, 4, 23, 3), 32, 4, None),
    "resnext101-32x8d": (Bottleneck, (3, 4, 23, 3), 32, 8, None),
    "se-resnet50": (Bottleneck, (3, 4, 6, 3), 1, 64, "16"),
    "se-resnext101-32x4d": (Bottleneck, (3, 4, 23, 3), 32, 4, "16"),
}


def hidden_units(squeeze_width, channels):
    """"16" -> 16, "c/16" -> channels // 16."""
    return channels // int(squeeze_width[2:]) if squeeze_width.startswith("c/") else int(squeeze_width)


class SqueezeExcite(nn.Module):
    def __init__(self, channels, hidden):
        super().__init__()
        self.fc1 = nn.Conv2d(channels, hidden, 1)
        self.fc2 = nn.Conv2d(hidden, channels, 1)

    def gate(self, x):
        return torch.sigmoid(self.fc2(F.relu(self.fc1(x.mean((2, 3), keepdim=True)))))

    def forward(self, x):
        return x * self.gate(x)


def squeezed(squeeze_width):
    """The class of bottlenecks with such gates."""

    class SqueezedBottleneck(Bottleneck):
        def __init__(self, inplanes, planes, *rest, **named):
            super().__init__(inplanes, planes, *rest, **named)
            shortcut = self.downsample
            del self.downsample  # to follow the gate in the state dictionary
            channels = planes * self.expansion
            self.se = SqueezeExcite(channels, hidden_units(squeeze_width, channels))
            self.downsample = shortcut

        def forward(self, x):
            y = self.relu(self.bn1(self.conv1(x)))
            y = self.relu(self.bn2(self.conv2(y)))
            y = self.se(self.bn3(self.conv3(y)))
            return self.relu(y + (self.downsample(x) if self.downsample is not None else x))

    return SqueezedBottleneck


def same_pads(extent, kernel, stride):
    """Before and after."""
    total = max((-(-extent // stride) - 1) * stride + kernel - extent, 0)
    return total // 2, total - total // 2


def pad_same(x, kernel, stride, value=0.0):
    top, bottom = same_pads(x.shape[2], kernel, stride)
    left, right = same_pads(x.shape[3], kernel, stride)
    return F.pad(x, (left, right, top, bottom), value=value)


class SameConv2d(nn.Conv2d):
    def forward(self, x):
        x = pad_same(x, self.kernel_size[0], self.stride[0])
        return F.conv2d(x, self.weight, self.bias, self.stride, 0, self.dilation, self.groups)


class SameMaxPool2d(nn.MaxPool2d):
    def forward(self, x):
        return F.max_pool2d(pad_same(x, self.kernel_size, self.stride, -float("inf")), self.kernel_size, self.stride)


def build(arch, classes=1000, squeeze_width=None, padding="torch"):
    block, blocks, groups, width, default_squeeze = NETWORKS[arch]
    if default_squeeze:
        block = squeezed(squeeze_width or default_squeeze)
    model = torchvision.models.ResNet(block, list(blocks), num_classes=classes, groups=groups, width_per_group=width)
    if padding == "same":
        for module in model.modules():
            if isinstance(module, nn.Conv2d):
                module.__class__ = SameConv2d
            elif isinstance(module, nn.MaxPool2d):
                module.__class__ = SameMaxPool2d
    return model
